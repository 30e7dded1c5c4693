"""What users, SageMaker and others do, each as one event or one invocation as the Lambda function would run it."""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from job_queue.adapters.items import ACTIVE, EXTERNAL, job_from
from job_queue.controller.cycle import Invocation
from job_queue.domain import state_machine
from job_queue.domain.errors import Conflict, InUse, InvalidRequest, QueueError, Refused, Unavailable
from job_queue.domain.expectations.hangs import MOST_HANGS, may_hang
from job_queue.domain.fleet.sites import HomeSite, Origin, key_of
from job_queue.domain.job import iso
from job_queue.scheduler import DrainStops, JobState
from tests.jobs import OWNER, P5, a_request
from tests.memory_tables import MemoryTables
from tests.torture.aws import ACCOUNT, JOBS, LINES, PLACE, REGION, site_in
from tests.torture.failure_samples import FailureCourse, may_fail
from tests.torture.invariants import require
from tests.torture.process import Process
from tests.torture.setups import (
    KEPT,
    REPLICATED,
    a_policy,
    a_regions_policy,
    a_shared_policy,
    with_failure_rules,
    with_limited_preemption,
)
from tests.torture.world import Sandbox, World

SUBMIT_TRIES = 3
MOST_DELIVERIES = 20  # times that an event is delivered if the function fails

Held = tuple[str, int, str, str, str, int]
"""What an attempt holds: its submission and number, the name and project of the job with the slots, pool, slots."""

AT_HOME_BY_BUCKET = {"OutputDataConfig": {"S3OutputPath": "s3://elsewhere/output"}}
AT_HOME_BY_NETWORK = {"VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}}
STARVED = "starved"  # its time of pending is up

# status, secondary status, failure reason, how often
ENDS = (
    ("Completed", "", None, 5),
    ("Failed", "", "AlgorithmError: exit code 1", 2),
    ("Failed", "", "CapacityError: no instances", 2),
    ("Failed", "", "InternalServerError: try again", 1),
    ("Stopped", "MaxRuntimeExceeded", None, 1),
    ("Stopped", STARVED, None, 1),
    ("Stopped", "", None, 1),  # by hand
)
ENDS_WHILE_STOPPING = (("Stopped", "", None, 9), ("Failed", "", "AlgorithmError: exit code 143", 3), *ENDS[:5])


class Actors:
    """The world's inhabitants, who act when they are told to."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        deadlines: random.Random | None = None,
        failures: FailureCourse | None = None,
    ) -> None:
        self._world = world
        self._rng = rng
        self._more = random.Random(str(rng.getstate()[1][4:8]))  # of its own, so that all else is as it was
        self._deadlines = deadlines  # of its own, so that all else is the same in walks without deadlines
        self.failures = failures or FailureCourse(random.Random(0))
        self._requests: dict[str, dict[str, Any]] = {}  # by job name, those of the users
        self._owners: dict[str, str] = {}  # of others' jobs
        self._externals = 0
        self.refused_policies = 0  # that were then applied by force

    # --- users -----------------------------------------------------------------------------------

    @property
    def wants_more(self) -> bool:
        """Whether users have jobs that they have not submitted."""
        return len(self._requests) < self._world.setup.jobs

    def submit(self) -> None:
        """A user submits a new job."""
        rng, setup = self._rng, self._world.setup
        name = f"job{len(self._requests) + 1}"
        tags = {"priority": str(rng.randint(0, 3))}
        if (project := rng.choice(setup.projects)) is not None:
            tags["project"] = project
        if setup.policy is None and rng.random() < 0.1:
            tags["preemptible"] = "false"
        if setup.interactive and self._more.random() < setup.interactive:
            tags["interactive"] = "true"
        if rng.random() < 0.2:
            tags["retries"] = "2"
        if rng.random() < 0.04:
            self._world.sagemaker.poison.add(name)
        if self._requests and (dependencies := self._dependencies()):
            tags["after"] = dependencies
        if setup.together is not None and self._more.random() < 0.7:
            tags |= {"group": "g", "max_parallel": str(setup.together)}
        if setup.policy and rng.random() < 0.1:
            tags["pools"] = " ".join(setup.pools)
        tags |= self._some_pools(tags.get("project"))
        resources = self._resources()
        if setup.elastic and "InstanceCount" in resources and self._more.random() < setup.elastic:
            tags["instances"] = self._sizes(resources)
        more = self.share(resources, tags) if setup.shared and rng.random() < 0.8 else {}
        more |= self._some_data(resources, tags)
        if self._fits_in_quota(resources, tags) and self._more.random() < 0.3:
            tags["preemptible"] = "false"
        if self._deadlines and self._deadlines.random() < setup.deadlines:
            tags |= self._some_deadlines(self._deadlines)
        if setup.failures:
            tags |= self.failures.tags()
        self.submit_job(name, resources, tags, **more)

    def _some_deadlines(self, rng: random.Random) -> dict[str, str]:
        """Draw some of a job's deadlines. Without a policy, a job may have a limit of its own on preemptions."""
        now, tags = self._world.now, dict[str, str]()
        if rng.random() < 0.5:
            tags["not_before"] = iso(now + rng.choice((5, 40, 100, 1500)))
        if rng.random() < 0.4:
            tags["start_by"] = iso(now + rng.choice((1600, 1700, 5000)))
            tags["start_by_action"] = rng.choice(("notify", "cancel", "next_pool"))
        if rng.random() < 0.5:
            tags["max_total_runtime"] = str(rng.choice((60, 90, 600)))
        if self._world.setup.policy is None and rng.random() < 0.5:
            tags["max_preemptions"] = rng.choice(("0", "1", "1"))
        return tags

    def _fits_in_quota(self, resources: dict[str, Any], tags: dict[str, str]) -> bool:
        """Whether the policy of the ending has a quota in which a job may start that may not be stopped."""
        setup = self._world.setup
        if (
            setup.policy is None
            or setup.regions
            or "InstanceType" not in resources
            or tags.keys() & {"instances", "pools"}
        ):
            return False
        quotas = {project["name"]: project["quota"] for project in setup.policy["projects"]}
        quota = quotas[tags["project"]].get(setup.pool_of(resources["InstanceType"]), 0)
        return bool(resources["InstanceCount"] <= quota)

    def _some_pools(self, project: str | None) -> dict[str, str]:
        """Some jobs name pools; those that may name the pool of the other region only."""
        if not self._world.setup.regions or project not in REPLICATED:
            return {}
        return self._more.choice(({}, {}, {"pools": "home ohio"}, {"pools": "ohio home"}, {"pools": "ohio"}))

    def _some_data(self, resources: dict[str, Any], tags: dict[str, str]) -> dict[str, Any]:
        """Some jobs write no checkpoints, and some have data or a network of the home region only."""
        more: dict[str, Any] = {}
        if not self._world.setup.regions:
            return more
        if tags.get("pools") == "ohio":
            if "InstanceCount" in resources:
                resources["InstanceCount"] = min(resources["InstanceCount"], self._world.setup.pools["ohio"])
        elif self._more.random() < 0.1:
            more = self._more.choice((AT_HOME_BY_BUCKET, AT_HOME_BY_NETWORK))
        return {**more, **({"CheckpointConfig": None} if self._more.random() < 0.2 else {})}

    def share(self, resources: dict[str, Any], tags: dict[str, str]) -> dict[str, Any]:
        """It asks for GPUs, and says what is to run."""
        resources.clear()
        resources |= {"InstanceType": P5, "InstanceCount": 1}
        tags["gpus"] = self._rng.choice(("0.3", "0.5", "1", "1", "2", "4", "8"))
        algorithm = a_request()["AlgorithmSpecification"]
        return {"AlgorithmSpecification": {**algorithm, "ContainerEntrypoint": ["train"]}}

    def _dependencies(self) -> str:
        """Some jobs wait for one or two of those before them, in some worlds for most of them."""
        rng = self._more
        if rng.random() >= self._world.setup.dependent:
            return ""
        named = rng.sample(sorted(self._requests), min(rng.choice((1, 1, 2)), len(self._requests)))
        return " ".join(f"{name}{rng.choice(('', ':any'))}" for name in named)

    def _resources(self) -> dict[str, Any]:
        """Up to three instances of a type; where there is a policy also alternatives, or several types at once."""
        rng, setup = self._rng, self._world.setup
        kind = rng.choice(setup.kinds)
        instances = min(rng.choice((1, 1, 2, 3)), setup.pools[setup.pool_of(kind)], 2 if setup.policy else 3)
        if setup.policy and (chance := rng.random()) < 0.3:
            if chance < 0.15:
                return {"InstancePreferences": [{"InstanceType": it} for it in setup.kinds], "InstanceCount": instances}
            groups = [{"InstanceGroupName": it[3:5], "InstanceType": it, "InstanceCount": 1} for it in setup.kinds]
            return {"InstanceGroups": groups}
        kept: dict[str, Any] = {"KeepAlivePeriodInSeconds": rng.choice(KEPT)} if rng.random() < setup.warm else {}
        volume = {"VolumeSizeInGB": rng.choice((30, 50))} if setup.warm else {}
        return {"InstanceType": kind, "InstanceCount": instances, **kept, **volume}

    def _sizes(self, resources: dict[str, Any]) -> str:
        """It would have as many as there are at most, and accepts one or two; sometimes all in between."""
        most = max(2, *self._world.setup.pools.values())
        resources["InstanceCount"] = most
        sizes = range(most, self._more.choice((0, 0, 1)), -1)
        return " ".join(map(str, sizes if self._more.random() < 0.5 else dict.fromkeys((most, sizes[-1]))))

    def submit_job(
        self, name: str, resources: dict[str, Any], tags: dict[str, str], *, owner: str = OWNER, **more: Any
    ) -> Process:
        """A user submits this job."""
        request = a_request(
            name,
            ResourceConfig={"VolumeSizeInGB": 30, **resources},
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            **more,
        )
        if request["CheckpointConfig"] is None:
            del request["CheckpointConfig"]
        if owner == OWNER:
            self._requests[name] = request
        else:
            self._owners[name] = owner
        return self._submit(name, request, f"submit {name} {resources} {tags}")

    def submit_again(self) -> None:
        """A user, or a retry, submits the same request once more."""
        name = self._rng.choice(list(self._requests))
        self._submit(name, self._requests[name], f"submit {name} again")

    def _submit(self, name: str, request: dict[str, Any], words: str) -> Process:
        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            for again in range(SUBMIT_TRIES):
                try:
                    accepted = sandbox.submissions.submit(request, self._owners.get(name, OWNER))
                    break
                except Unavailable:
                    if again == SUBMIT_TRIES - 1:
                        raise
                except InvalidRequest:
                    # Jobs that it is to run after are not there or failed, or its deadline has passed.
                    if {"after", "start_by"} & {tag["Key"] for tag in request["Tags"]}:
                        return
                    raise
            self._world.invariants.accepted[name] = accepted.record.job.submission
            sandbox.controller.wake(invocation, accepted.metadata)

        return self._world.begin(words, program)

    def cancel(self) -> None:
        """A user cancels a job."""
        if (name := self._some_job()) is not None:
            self.cancel_job(name)

    def cancel_job(self, name: str) -> Process:
        """A user cancels this job."""

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            record, changed = sandbox.commands.cancel(name, OWNER)
            if changed:
                self._world.invariants.cancelled.add(record.job.submission)
                sandbox.controller.wake(invocation)

        return self._world.begin(f"cancel {name}", program)

    def change(self) -> None:
        """A user gives a job another priority, holds it or releases it."""
        name = self._some_job()
        if name is None:
            return
        wanted: dict[str, Any] = self._rng.choice(
            ({"priority": self._rng.randint(0, 5)}, {"held": True}, {"held": False})
        )
        self.change_job(name, wanted)

    def requeue(self, rng: random.Random) -> None:
        """A user requeues a job, holds it at once, or releases it.

        :param rng: of its own, so that all else is the same in walks without requeues.
        """
        names = [name for name in self._requests if self._world.invariants.row(name)]
        if names:
            hold_now = {"held": True, "now": True}
            self.change_job(rng.choice(names), rng.choice(({"requeue": True}, hold_now, {"held": False})))

    def drain(self, rng: random.Random) -> None:
        """An admin drains a pool, now or later, or ends a drain.

        :param rng: of its own, so that all else is the same in walks without drains.
        """
        pool, ahead = rng.choice(list(self._world.setup.pools)), rng.choice((None, 0, 30, 300, 1500))
        if ahead is None:
            self.undrain(pool)
            return
        self.drain_pool(pool, ahead, rng.choice(list(DrainStops)))

    def drain_pool(self, pool: str, ahead: float, stops: DrainStops) -> Process:
        """An admin drains this pool in `ahead` seconds."""
        at = datetime.fromtimestamp(self._world.now + ahead, UTC)

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            try:
                sandbox.drains.drain(pool, OWNER, at=at, stops=stops)
            except QueueError as error:
                self._world.say(f"drain: {error.message}")
                return
            sandbox.controller.wake(invocation)

        return self._world.begin(f"drain {pool} in {ahead} s: {stops}", program)

    def undrain(self, pool: str) -> Process:
        """An admin ends the drain of a pool."""

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            try:
                sandbox.drains.undrain(pool, OWNER)
            except QueueError as error:
                self._world.say(f"undrain: {error.message}")
                return
            sandbox.controller.wake(invocation)

        return self._world.begin(f"undrain {pool}", program)

    def notice_a_hang(self, rng: random.Random) -> None:
        """Some running job hangs, and a tick records this, as `services.watches.hangs` does without the lease.

        :param rng: of its own, so that all else is the same in walks without hangs.
        """
        names = [name for name in self._requests if self._world.invariants.row(name)]
        if not names:
            return
        name = rng.choice(names)

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            record = sandbox.repository.record(name)
            if record is None or not may_hang(record.job):
                return
            now, requeue = sandbox.clock(), record.job.hangs < MOST_HANGS
            transition = state_machine.record_hang(record.job, now - 60, now, requeue=requeue)
            with suppress(Refused):
                sandbox.repository.apply(replace(transition, record=record), now)

        self._world.begin(f"hang {name}", program)

    def change_job(self, name: str, wanted: dict[str, Any]) -> Process:
        """A user changes this job."""

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            try:
                _, changed = sandbox.commands.change(name, self._owners.get(name, OWNER), **wanted)
            except Conflict:
                return
            if changed:
                sandbox.controller.wake(invocation)

        return self._world.begin(f"change {name} {wanted}", program)

    def apply_policy(self) -> None:
        """An operator applies another policy."""
        if self._world.setup.policy is not None:
            setup = self._world.setup
            if setup.regions:
                self.apply(a_regions_policy(self._rng, setup.other_sites[0], setup.pools))
            else:
                self.apply((a_shared_policy if setup.shared else a_policy)(self._rng))

    def apply(self, policy: dict[str, Any]) -> Process:
        """An operator applies this policy, by force if it is refused because of live jobs."""
        policy = with_limited_preemption(policy) if self._world.setup.deadlines else policy
        policy = with_failure_rules(policy, self._world.setup) if self._world.setup.failures else policy

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            before, held = sandbox.policy_service.current(), self._non_preemptible()
            try:
                try:
                    sandbox.policy_service.apply(policy, before.version, OWNER)
                except InUse as error:
                    self._world.say(f"policy: {error.message}")
                    self.refused_policies += 1
                    sandbox.policy_service.apply(policy, before.version, OWNER, force=True)
                else:
                    self._check_quotas(before.document, policy, held & self._non_preemptible())
            except QueueError as error:
                self._world.say(f"policy: {error.message}")
            sandbox.controller.wake(invocation)

        return self._world.begin(f"policy {policy}", program)

    def _non_preemptible(self) -> set[Held]:
        """List the attempts that run and may not be stopped, with the slots that they, or their carriers, hold.

        Exclude the members of a carrier that is being stopped: the carrier gives its slots back.
        """
        rows = (row for where, row in self._world.tables.rows.items() if where[:2] == (LINES, ACTIVE))
        jobs = {job.name: job for job in map(job_from, rows)}
        running = [
            (job, jobs.get(job.allocation.carrier, job) if job.allocation else job)
            for job in jobs.values()
            if job.carries is None and not job.preemptible and job.state is not JobState.STOPPING
        ]
        return {
            (job.submission, job.attempt, holder.name, holder.project, pool, count)
            for job, holder in running
            if holder.state is not JobState.STOPPING
            for pool, count in holder.slots.items()
        }

    def _check_quotas(self, before: Mapping[str, Any], after: Mapping[str, Any], held: set[Held]) -> None:
        """Document 002: without force no quota of a project falls below its running non-preemptible jobs.

        :param held: of attempts that have run from before the policy was applied until after it.
        """
        if after.get("settings", {}).get("allow_oversubscription"):
            return
        old = {project["name"]: project.get("quota", {}) for project in before["projects"]}
        holders = {(name, project, pool, count) for _, _, name, project, pool, count in held}
        for project in after["projects"]:
            owner = project["name"]
            for pool, most in project.get("quota", {}).items():
                used = sum(count for _, *where, count in holders if where == [owner, pool])
                lowered = most < old.get(owner, {}).get(pool, 0)
                found = f"{owner} has {most} {pool}, and {used} are held"
                require(not lowered or used <= most, "no quota is lowered below non-preemptible jobs", found)

    def _some_job(self) -> str | None:
        names = [name for name in self._requests if self._world.invariants.row(name)]
        return self._rng.choice(names) if names else None

    def spoil(self) -> None:
        """What a job needs is taken away, its data or its role: SageMaker takes its request no more."""
        if (name := self._some_job()) is not None and name not in self._world.sagemaker.poison:
            self._world.say(f"{name} is spoilt")
            self._world.sagemaker.poison.add(name)

    def repair(self) -> None:
        """What was taken away is there again, for those whose request is not at fault for sure: they would wait for it.

        SageMaker took it once, or a pool changes it.
        """
        everywhere = self._world.setup.regions  # the other region changes all requests
        changed = {name for name, request in self._requests.items() if everywhere or _is_changed_by_pools(request)}
        ran = {launch.job for launch in self._world.sagemaker.launches.values()}
        self._world.sagemaker.poison -= ran | changed

    # --- the queue's other triggers --------------------------------------------------------------

    def tick(self) -> Process:
        """The schedule fires."""
        return self._world.begin(
            "tick",
            lambda sandbox, invocation: sandbox.controller.tick(invocation),
            may_wait=self._world.setup.waiting,
        )

    def wake_up(self) -> Process:
        """An invocation begins that another one has asked for."""
        by = self._world.woken.pop(0)
        return self._world.begin(
            f"woken by {by}",
            lambda sandbox, invocation: sandbox.controller.wake(invocation),
            may_wait=self._world.setup.waiting,
            woken_by=by,
        )

    def deliver(self, detail: dict[str, Any]) -> Process:
        """An event of SageMaker, or of S3, arrives."""
        if "carrier" in detail:
            return self.deliver_report(detail["carrier"], detail["attempt"])

        place = detail.get(PLACE, (None, None))
        origin = Origin(place[1] or REGION, place[0] or ACCOUNT, HomeSite(REGION, ACCOUNT))
        reported = {name: value for name, value in detail.items() if name != PLACE}

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            sandbox.controller.training_job_changed(reported, invocation, origin)

        words = f"event {detail['TrainingJobName']} {detail['TrainingJobStatus']}"
        words += f" of {place[1]} {place[0] or ''}" if PLACE in detail else ""
        return self._world.begin(words, program, may_wait=self._world.setup.waiting)

    def deliver_first(self) -> Process:
        """The first event that is under way arrives."""
        return self.deliver(self._world.events.pop(0))

    def deliver_state(self, name: str) -> Process:
        """An event arrives that tells the present state of a training job."""
        return self.deliver(self._world.sagemaker.event(name))

    # --- SageMaker -------------------------------------------------------------------------------

    def end_some(self, *, tell: bool) -> None:
        """Some training job ends; its event is told or lost."""
        alive = self._world.sagemaker.alive_names()
        if not alive:
            return
        name = self._rng.choice(alive)
        stopping = self._world.sagemaker.jobs[name].status == "Stopping"
        choices: Sequence[tuple[str, str, str | None, int]] = ENDS_WHILE_STOPPING if stopping else ENDS
        if name in self._world.sagemaker.carrier_of_member:
            choices = tuple(it for it in choices if it[1] != STARVED and not (it[2] or "").startswith("CapacityError"))
        status, secondary, failure, _ = self._rng.choices(choices, [it[3] for it in choices])[0]
        self.end(name, status, secondary, failure, tell=tell)

    def progress_some(self, rng: random.Random, *, loses: bool) -> None:
        """A training job, one of the queue or of others, reaches another stage. Its event is told or lost.

        :param loses: whether events may be lost.
        """
        sagemaker = self._world.sagemaker
        names = [name for name in sagemaker.alive_names() if sagemaker.jobs[name].status == "InProgress"]
        names = [name for name in names if name not in sagemaker.carrier_of_member]
        if not names:
            return
        name = rng.choice(names)
        sagemaker.progress(name, rng.choice(("Pending", "Downloading", "Training", "Uploading", "Interrupted")))
        self._world.say(f"{name} reaches {sagemaker.jobs[name].secondary}")
        if loses and rng.random() < 0.3:
            self._world.faults["event lost"] += 1
        else:
            self._world.events.append(sagemaker.event(name))

    def fail_some(self, *, tell: bool) -> bool:
        """Some attempt of the queue fails in one of many ways. Return False if there is none."""
        names = [name for name in self._world.sagemaker.alive_launches() if may_fail(name)]
        if names:
            self.fail(self.failures.rng.choice(names), tell=tell)
        return bool(names)

    def fail(self, name: str, *, tell: bool = True) -> None:
        """This attempt fails in one of many ways."""
        sagemaker = self._world.sagemaker
        on_carrier = name in sagemaker.carrier_of_member
        failed = self.failures.failure(sagemaker.launches[name].job, self._world.now, on_carrier=on_carrier)
        sagemaker.logs.failed[name] = failed
        self.end(name, "Failed", "", failed.sample.reason, tell=tell)

    def end(
        self,
        name: str,
        status: str = "Completed",
        secondary: str = "",
        failure: str | None = None,
        *,
        tell: bool = True,
    ) -> None:
        """A training job ends."""
        world = self._world
        if status == "Stopped" and not secondary and name not in world.sagemaker.stopped:
            world.sagemaker.by_hand.add(name)
        world.say(f"{name} ends: {status} {secondary} {failure or ''}{'' if tell else ', and its event is lost'}")
        if secondary == STARVED or (failure or "").startswith(("CapacityError", "InternalServerError")):
            world.sound = False
            world.faults["SageMaker lacks capacity or fails"] += 1
        if secondary == STARVED:
            world.sagemaker.starve(name)
        else:
            world.sagemaker.end(name, status, secondary, failure)
        if tell:
            self.tell(name)
        else:
            world.faults["event lost"] += 1
        world.check()

    def delete_some(self, rng: random.Random) -> None:
        """Delete a training job that has ended, often one of the last, before its end is known or after."""
        world, sagemaker = self._world, self._world.sagemaker
        names = [
            name
            for name in sagemaker.names()
            if sagemaker.jobs[name].ended
            and name not in sagemaker.carrier_of_member
            and name not in sagemaker.deletions
        ]
        if not names:
            return
        called = {late.call.words for late in world.late if late.call.kind == "create"}
        some = [it for it in names if it in called] or (names[-3:] if rng.random() < 0.7 else names)
        name, keeps_trace = rng.choice(some), rng.random() < 0.5
        if not sagemaker.delete(name, keeps_trace=keeps_trace):
            return
        world.say(f"{name} is deleted{'' if keeps_trace else ', and does not show any more how it ended'}")
        world.faults["training job deleted"] += 1
        launch = sagemaker.launches.get(name)
        row = world.invariants.row(launch.job) if launch else None
        if row and row.get("trainingJobName") == name:
            world.sound = False  # its end may stay unknown for a quarter of an hour

    def fall_silent(self) -> None:
        """The agent of some carrier dies."""
        if carriers := self._world.sagemaker.carriers():
            name = self._rng.choice(carriers)
            self._world.say(f"the agent of {name} is dead")
            self._world.faults["agent dead"] += 1
            self._world.sound = False
            self._world.sagemaker.fall_silent(name)

    def deliver_report(self, carrier: str, attempt: str | None) -> Process:
        """An event tells that an agent has introduced itself, or has reported the end of a member."""

        def program(sandbox: Sandbox, invocation: Invocation) -> None:
            sandbox.controller.mailboxes_changed([(carrier, attempt)], invocation)

        return self._world.begin(f"report {carrier}/{attempt}", program, may_wait=self._world.setup.waiting)

    def tell_of_agents(self) -> None:
        """Events tell of agents that have started; some are lost."""
        while self._world.sagemaker.introduced:
            carrier = self._world.sagemaker.introduced.pop()
            if self._world.setup.faults and self._more.random() < 0.2:
                self._world.faults["event lost"] += 1
            else:
                self._world.events.append({"carrier": carrier, "attempt": None})

    def tell(self, name: str) -> None:
        """An event tells the present state of a training job, some day; not all of them carry tags."""
        if (carrier := self._world.sagemaker.carrier_of_member.get(name)) is not None:
            self._world.events.append({"carrier": carrier, "attempt": name})
            return
        event = self._world.sagemaker.event(name)
        if self._rng.random() < 0.2:
            del event["Tags"]
        self._world.events.append(event)

    def tell_again(self) -> None:
        """An event that nobody asked for: repeated, or of a state that has not changed."""
        if names := self._world.sagemaker.names():
            self._world.faults["event that says nothing new"] += 1
            self.tell(self._rng.choice(names))

    def start_external(self) -> None:
        """Somebody starts a training job past the queue, where a slot is free and nobody is about to take it."""
        world, pool = self._world, "default"
        if world.setup.regions:
            pool = self._more.choice(list(world.setup.pools))
        site = world.setup.sites.get(pool)
        held = 0
        for row in MemoryTables.query(world.tables, LINES, "active"):
            held += row["slots"].get(pool, 0)
        for row in MemoryTables.query(world.tables, LINES, "external"):
            held += sum(row["demand"].values()) if site_in(row["position"]) == (site.key if site else "") else 0
        used, capacity = world.sagemaker.in_use().get(pool, 0), world.sagemaker.limits[pool]
        if world.processes or world.late or self._externals > 1 or max(held, used) >= capacity:
            return
        self._externals += 1
        name = f"theirs{self._externals}"
        world.say(f"somebody starts {name} in {pool}")
        request = a_request(name)
        if self._rng.random() < world.setup.warm:
            request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = self._rng.choice(KEPT)
        world.sagemaker.start_external({**request, "TrainingJobName": name}, site)
        name = key_of(name, site)
        for _ in range(MOST_DELIVERIES):  # EventBridge delivers an event again if the function fails
            process = self.deliver(world.sagemaker.event(name))
            while not process.ended:
                world.resume(process)
            if (LINES, EXTERNAL, name) in world.tables.rows:
                break

    def unfinished(self, *, held: bool = False) -> list[str]:
        """Jobs of the queue that have not ended; all, or those that are held."""
        ended = ("completed", "failed", "stopped")
        rows = [row for where, row in self._world.tables.rows.items() if where[0] == JOBS]
        return [row["jobName"] for row in rows if row["jobState"] not in ended and row["held"] >= held]


def _is_changed_by_pools(request: dict[str, Any]) -> bool:
    tags = {tag["Key"] for tag in request["Tags"]}
    return "InstancePreferences" in request["ResourceConfig"] or "pools" in tags
