"""Somebody who may create, tag and end training jobs, and submit jobs, and who means harm.

They read every tag in the account, and in the trail those of calls that SageMaker has refused. Nobody has denied them
the queue's tags and names, as `examples/iam/only_the_queue.json` would.
"""

import json
import random
from collections.abc import Callable
from typing import Any

from job_queue.domain.fleet.sites import key_of, name_in
from job_queue.domain.launching.numbers import contains
from job_queue.domain.names import ATTEMPT_TAG, JOB_TAG, PROOF_TAG, QUEUE_NAME, QUEUE_TAG, SUBMISSION_TAG, apply_qstamp
from tests.jobs import a_request
from tests.torture.actors import ENDS, Actors
from tests.torture.aws import JOBS, launched_in, site_in
from tests.torture.setups import BUCKETS, KEPT, OTHER_REGION
from tests.torture.world import World

MOST_ALIVE = 3  # training jobs of theirs at a time
MOST_STARTED = 12
MOST_SUBMITTED = 4
LARGE = 5_000  # characters of a request
EVIL = "arn:aws:iam::123456789012:user/mallory"

Tags = dict[str, str]


class Adversary:
    """What they do, each as one step."""

    def __init__(self, world: World, actors: Actors, rng: random.Random) -> None:
        self._world = world
        self._actors = actors
        self._rng = rng
        self._began = 0
        self._submitted: list[str] = []
        self._folders = random.Random(f"folders {rng.getstate()[1][:4]}")  # of its own, as for the setups of walks
        self._kept: dict[str, bytes] = {}  # by key, what they have read of mailboxes

    def act(self) -> None:
        """Whatever they think of."""
        acts: list[tuple[Callable[[], None], float]] = [
            (self.create, 5),
            (self.end, 3),
            (self.tell, 1),
            (self.tag_their_own, 3),
            (self.tag_an_attempt, 3),
            (self.submit, 2),
        ]
        if self._world.setup.regions:
            acts.append((self.copy_to_the_other_region, 6))
        if self._world.setup.shared:
            acts += [
                (self.forge_report, 6),
                (self.forge_order, 6),
                (self.spoil_their_own, 2),
                (self.remember, 3),
            ]
        self._rng.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()

    # --- training jobs ---------------------------------------------------------------------------

    def create(self) -> None:
        """They create a training job, often under a name that an attempt has or will have."""
        if len(self._alive()) >= MOST_ALIVE or self._began >= MOST_STARTED:
            return
        self._began += 1
        kind = self._rng.choice(self._world.setup.kinds)
        if (freed := self._freed()) and self._rng.random() < 0.8:
            self.create_job(*self._rng.choice(freed), kind)
        elif self._world.setup.shared:  # the names of members are free in SageMaker; here one name means one thing
            name = f"mine{self._began}"
            self.create_job(name, self._tags(name), kind)
        elif (aimed := self._aimed()) and self._rng.random() < 0.6:
            self.create_job(*self._rng.choice(aimed), kind)
        else:
            name = self._rng.choice((f"mine{self._began}", *self._names()))
            self.create_job(name, self._tags(name), kind)

    def copy_to_the_other_region(self) -> None:
        """They create a training job with the name, tags and proof of an attempt, in the region where that is not."""
        sagemaker = self._world.sagemaker
        attempts = [name for name in sagemaker.names() if name in sagemaker.launches]
        if len(self._alive()) < MOST_ALIVE and self._began < MOST_STARTED and attempts:
            self._began += 1
            name = self._rng.choice(attempts[-4:])
            tags = dict(sagemaker.launches[name].tags)
            self.create_job(self._in_the_other_region(name), tags, self._world.setup.kinds[0])

    def _in_the_other_region(self, key: str) -> str:
        (site,) = self._world.setup.other_sites
        return name_in(key) if site_in(key) else key_of(key, site)

    def _aimed(self) -> list[tuple[str, Tags]]:
        """Free names that the queue is about to use, with the best tags there are for them."""
        sagemaker, aimed = self._world.sagemaker, []
        for name, tags in sagemaker.trail:
            if name not in sagemaker.jobs and self._is_recorded(name, tags):
                aimed.append((name, tags))
        for launch in sagemaker.launches.values():
            name = apply_qstamp(launch.job, launch.attempt + 1)
            if self._world.setup.regions and self._rng.random() < 0.5:
                name = self._in_the_other_region(name)
            if name not in sagemaker.jobs:
                aimed.append((name, self._tags_for(name, launch.tags)))
        return aimed

    def _freed(self) -> list[tuple[str, Tags]]:
        """Names of attempts that were deleted, with the tags that they had."""
        sagemaker = self._world.sagemaker
        return [
            (name, sagemaker.launches[former[-1]].tags)
            for name, former in sagemaker.former.items()
            if name not in sagemaker.jobs and former[-1] in sagemaker.launches
        ]

    def create_job(self, name: str, tags: Tags, kind: str) -> None:
        """They create this one."""
        world = self._world
        resources: dict[str, Any] = {"InstanceType": kind, "InstanceCount": self._rng.choice((1, 1, 2))}
        if self._rng.random() < world.setup.warm:
            resources["KeepAlivePeriodInSeconds"] = self._rng.choice(KEPT)
        site = next((it for it in world.setup.other_sites if it.key == site_in(name)), None)
        request = a_request(name_in(name), ResourceConfig={"VolumeSizeInGB": 30, **resources}, Tags=_listed(tags))
        world.say(f"the adversary creates {name} {resources} {tags}")
        if world.sagemaker.start_external(request, site) and self._rng.random() < 0.7:
            self._actors.tell(name)
        world.check()

    def end(self) -> None:
        """One of theirs ends."""
        if alive := self._alive():
            status, secondary, failure, _ = self._rng.choice(ENDS[:4])
            self._actors.end(self._rng.choice(alive), status, secondary, failure, tell=self._rng.random() < 0.8)

    def tell(self) -> None:
        """An event of one of theirs, with the tags that it has now."""
        if theirs := self._theirs():
            self._actors.tell(self._rng.choice(theirs))

    def tag_their_own(self) -> None:
        """They change the tags of one of theirs."""
        if theirs := self._theirs():
            name = self._rng.choice(theirs)
            self.tag(name, self._tags(name))

    def tag_an_attempt(self) -> None:
        """They add or delete tags of an attempt of the queue; sometimes they put back what was there."""
        sagemaker, rng = self._world.sagemaker, self._rng
        attempts = [name for name in sagemaker.alive_names() if name in sagemaker.launches]
        attempts = [name for name in attempts if name not in sagemaker.carrier_of_member]
        if not attempts:
            return
        name = rng.choice(attempts)
        tags = dict(sagemaker.jobs[name].tags)
        chosen = rng.choice(("all", QUEUE_TAG, PROOF_TAG, ATTEMPT_TAG, "other", "back"))
        if chosen == "all":
            tags = {}
        elif chosen == "other":
            tags = self._tags(name)
        elif chosen == "back":
            tags = dict(sagemaker.launches[name].tags)
        else:
            tags.pop(chosen, None)
        self.tag(name, tags)

    def tag(self, name: str, tags: Tags) -> None:
        """A training job has these tags from now on."""
        world = self._world
        world.say(f"the adversary tags {name}: {tags}")
        launch = world.sagemaker.launches.get(name)
        if launch:
            # Whether its stop is denied from now on is for the queue to find out; the plan does not know.
            world.sound = False
            row = world.invariants.row(launch.job)
            if row is None or launched_in(row) != name or row["jobState"] == "starting":
                world.sagemaker.unclear.add(name)
        world.sagemaker.tag(name, tags)

    # --- jobs ------------------------------------------------------------------------------------

    def submit(self) -> None:
        """They submit jobs to be in the way: held ones, large ones, of every kind, and change them without end."""
        rng, setup = self._rng, self._world.setup
        if self._submitted and (len(self._submitted) >= MOST_SUBMITTED or rng.random() < 0.5):
            wanted: dict[str, Any] = rng.choice(({"priority": rng.randint(0, 9)}, {"held": True}, {"held": False}))
            self._actors.change_job(rng.choice(self._submitted), wanted)
            return
        name = f"evil{len(self._submitted) + 1}"
        self._submitted.append(name)
        tags = {"priority": "9", "retries": str(rng.randint(0, 2))}
        if (project := rng.choice(setup.projects)) is not None:
            tags["project"] = project
        if setup.policy and rng.random() < 0.3:
            tags["pools"] = " ".join(setup.pools)
        resources = {"InstanceType": rng.choice(setup.kinds), "InstanceCount": 1}
        more = {"Environment": {"LARGE": "x" * LARGE}} if rng.random() < 0.3 else {}
        if setup.shared:  # members of carriers of their own, on which they can read and write
            more |= self._actors.share(resources, tags)
            tags["priority"] = str(rng.randint(0, 3))
        if setup.regions and (live := self._actors.unfinished()) and self._folders.random() < 0.5:
            # the folder of somebody's job, as it is called in the other region
            folder = f"s3://{BUCKETS[OTHER_REGION]}/checkpoints/{self._folders.choice(live)}"
            more |= {"CheckpointConfig": {"S3Uri": folder}}
        self._actors.submit_job(name, resources, tags, owner=EVIL, **more)
        if not setup.shared or rng.random() < 0.3:
            self._actors.change_job(name, {"held": True})

    # --- mailboxes -------------------------------------------------------------------------------
    # They have the rights of their own role on the mailboxes of their own carriers. On those of others they have what
    # no role should have: they read everything, and write orders and reports of members that still run.

    def forge_report(self) -> None:
        """They report that somebody's attempt has ended, in some mailbox, and an event tells of it."""
        sagemaker, rng = self._world.sagemaker, self._rng
        carriers, attempts = sorted(sagemaker.agents), self._running()
        if not carriers or not attempts:
            return
        attempt = rng.choice(attempts)
        own = sagemaker.carrier_of_member.get(attempt)
        carrier = own if own is not None and rng.random() < 0.4 else rng.choice(carriers)
        tags = [{"Key": key, "Value": it} for key, it in sagemaker.jobs[attempt].tags.items()]
        submission = sagemaker.jobs[attempt].tags.get(SUBMISSION_TAG, "")
        report = {
            "carrier": carrier,
            "attempt": attempt,
            "submission": submission,
            "call": rng.randint(1, 9),
            "at": self._world.now,
            "status": rng.choice(("Completed", "Failed", "Stopped", "InProgress")),
            "reason": "",
            "tags": tags,
        }
        text = json.dumps(report)
        stolen = [content for key, content in self._seen() if key.endswith("ended.json")]
        code = rng.choice([json.loads(it).get("code", "") for it in stolen] or ["00" * 32])
        body = rng.choice(
            (json.dumps({"report": text, "code": code}).encode(), json.dumps(report).encode(), *stolen[:1])
        )
        self._write(f"carriers/{carrier}/out/{attempt}/ended.json", body)
        if rng.random() < 0.8:
            self._world.events.append({"carrier": carrier, "attempt": attempt})

    def forge_order(self) -> None:
        """They order an agent to start or to stop something: by an order of their own, a copy, or an old one."""
        sagemaker, rng = self._world.sagemaker, self._rng
        carriers = [name for name in sagemaker.carriers() if name in sagemaker.agents]
        if not carriers:
            return
        carrier, do = rng.choice(carriers), rng.choice(("assign", "stop"))
        attempt = rng.choice([*self._running(), f"evil1-qstamp-{rng.randint(1, 3)}", "job1-qstamp-1"])
        copies = [content for key, content in self._seen() if key.endswith(f"{do}.json")]
        order = {
            "do": do,
            "carrier": carrier,
            "attempt": attempt,
            "submission": sagemaker.jobs[attempt].tags.get(SUBMISSION_TAG, "") if attempt in sagemaker.jobs else "",
            "call": 99,
            "gpus": [0],
            "tenths": 10,
            "sealed": "",
        }
        own = json.dumps({"order": json.dumps(order), "signature": "00" * 64}).encode()
        body = rng.choice((own, *([rng.choice(copies)] * 3 if copies else [])))
        moved = json.loads(json.loads(body)["order"])
        if rng.random() < 0.3 and moved["carrier"] in carriers:  # as it was, when it may be over
            carrier, attempt = moved["carrier"], moved["attempt"]
        self._write(f"carriers/{carrier}/in/{attempt}/{do}.json", body)
        sagemaker.look_everywhere()
        self._world.check()

    def spoil_their_own(self) -> None:
        """They remove or overwrite what the agents of their own carriers have written about others' names."""
        sagemaker, rng = self._world.sagemaker, self._rng
        theirs = [name for name in sagemaker.carriers() if "--mallory-" in name]
        if not theirs:
            return
        carrier = rng.choice(theirs)
        key = f"carriers/{carrier}/out/{rng.choice(('agent', 'alive'))}.json"
        if rng.random() < 0.5:
            self._world.say(f"the adversary removes {key}")
            sagemaker.bucket.objects.pop(key, None)
        else:
            self._write(key, rng.choice((b"{}", b'{"key": "3"}', b'{"report": "{}", "code": ""}')))
        if key.endswith("agent.json"):
            self._world.events.append({"carrier": carrier, "attempt": None})

    def remember(self) -> None:
        """They keep copies of what is in the bucket."""
        for key, (content, _) in self._world.sagemaker.bucket.objects.items():
            if key.endswith(".json") and content.startswith(b"{"):
                self._kept[key] = content

    def _seen(self) -> list[tuple[str, bytes]]:
        return sorted(self._kept.items())

    def _running(self) -> list[str]:
        sagemaker = self._world.sagemaker
        return [name for name in sagemaker.alive_names() if name in sagemaker.launches]

    def _write(self, key: str, content: bytes) -> None:
        self._world.say(f"the adversary writes {key}: {content[:80]!r}")
        self._world.sagemaker.bucket.put_object(Bucket="work", Key=key, Body=content)

    # --- what they know --------------------------------------------------------------------------

    def _alive(self) -> list[str]:
        sagemaker = self._world.sagemaker
        return [name for name in sagemaker.alive_names() if name in sagemaker.theirs]

    def _theirs(self) -> list[str]:
        sagemaker = self._world.sagemaker
        return sorted(sagemaker.theirs.intersection(sagemaker.names()))

    def _names(self) -> list[str]:
        """Names that attempts have, had or will have, also of jobs that nobody has submitted yet."""
        names = []
        for job in (f"job{number + 1}" for number in range(self._world.setup.jobs)):
            row = self._world.invariants.row(job)
            attempt = row["attempt"] if row else 1
            names += [apply_qstamp(job, number) for number in range(max(1, attempt - 1), attempt + 3)]
        return names

    def _tags(self, name: str) -> Tags:
        """Tags to deceive with: none, copies, and what could be made up from them."""
        rng, readable = self._rng, self._readable()
        if not readable or rng.random() < 0.1:
            return {}
        copied = dict(rng.choice(readable))
        match rng.choice(("copy", "copy", "number", "proof", "name", "made up", "another's")):
            case "number":
                copied[ATTEMPT_TAG] = name_in(name).rpartition("-")[2]
            case "proof":
                number, _, digest = copied.get(PROOF_TAG, "1-").partition("-")
                copied[PROOF_TAG] = f"{int(number or 0) + 1}-{digest}"
            case "made up":
                copied[PROOF_TAG] = f"{rng.randint(1, 3)}-{rng.getrandbits(256):064x}"
            case "another's":
                copied[PROOF_TAG] = rng.choice(readable).get(PROOF_TAG, "")
            case "name":
                copied = self._tags_for(name, copied)
        return copied

    def _tags_for(self, name: str, copied: Tags) -> Tags:
        """What an attempt of this name should have, but for its proof. Nobody keeps a submission secret."""
        job, _, number = name_in(name).partition("-qstamp-")
        row = self._world.invariants.row(job)
        told = {QUEUE_TAG: QUEUE_NAME, JOB_TAG: job, ATTEMPT_TAG: number}
        return {**copied, **told, **({SUBMISSION_TAG: row["submission"]} if row else {})}

    def _readable(self) -> list[Tags]:
        """The tags of all training jobs, and of calls that SageMaker has refused.

        Not of a call whose refusal the queue has not recorded: it sends another one before the trail shows this one.
        """
        sagemaker = self._world.sagemaker
        return [
            *(launch.tags for launch in sagemaker.launches.values()),
            *(dict(sagemaker.jobs[name].tags) for name in sorted(sagemaker.theirs)),
            *(tags for name, tags in sagemaker.trail if self._is_recorded(name, tags)),
        ]

    def _is_recorded(self, name: str, tags: Tags) -> bool:
        row = self._world.tables.rows.get((JOBS, tags[JOB_TAG]))
        if row is None or row["submission"] != tags[SUBMISSION_TAG] or launched_in(row) != name:
            return True
        number = int(tags[PROOF_TAG].partition("-")[0])
        return row["jobState"] != "starting" or not contains(row.get("unheard", ()), number)


def _listed(tags: Tags) -> list[dict[str, str]]:
    return [{"Key": key, "Value": content} for key, content in tags.items()]
