"""What must be true after every step, whatever has failed. SageMaker's truth is asked, not the queue's records."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from job_queue.adapters.items import ACTIVE, BACKOFF_PREFIX, CONTROL, EXTERNAL, LEASE, drains_from, job_from, live_key
from job_queue.adapters.sagemaker import CLOCK_SECONDS, TrainingJob
from job_queue.domain.capacity_backoff import LAG_SECONDS, LONGEST_LAG_SECONDS
from job_queue.domain.expectations.hangs import MOST_HANGS
from job_queue.domain.fleet.sites import key_of, name_in
from job_queue.domain.job import INTERRUPTED, LEAST_RUNTIME_SECONDS, Job, epoch
from job_queue.domain.names import apply_qstamp
from job_queue.domain.state_machine import MISSING_SECONDS
from job_queue.scheduler import Settings
from tests.torture.aws import HISTORY, JOBS, LINES, SimulatedTables, launched_in, site_in
from tests.torture.process import LAMBDA_SECONDS
from tests.torture.retry_expectations import NEVER, Counts, Orders, after_failure, views
from tests.torture.setups import BUCKETS, MOST_PREEMPTIONS, OTHER_REGION, REPLICATED, Setup

if TYPE_CHECKING:
    from tests.torture.members import SimulatedCarriers

ACTIVE_STATES = ("starting", "running", "stopping")
MOST_REFUSALS = 12  # of an attempt in a minute, throttled calls not counted
POLICY = (LINES, "control", "policy")
DAY = 24 * 3600


class ViolationError(AssertionError):
    """An invariant does not hold."""


def require(holds: object, invariant: str, found: str) -> None:
    if not holds:
        raise ViolationError(f"{invariant}: {found}")


def tags_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The tags that a job's user has given it."""
    return {tag["Key"]: tag["Value"] for tag in json.loads(row["jobDetails"])["Tags"]}


def dependencies_of(row: dict[str, Any]) -> list[tuple[str, bool]]:
    """The jobs that a job's user has named, and whether it does not matter how each ends."""
    tags = {tag["Key"]: tag["Value"] for tag in json.loads(row["jobDetails"])["Tags"]}
    named = (word.partition(":") for word in tags.get("after", "").split())
    return [(name, outcome == "any") for name, _, outcome in named]


def sizes_of(row: dict[str, Any]) -> set[int]:
    """The numbers of instances that a job's user has named; none where there are no several."""
    tags = {tag["Key"]: tag["Value"] for tag in json.loads(row["jobDetails"])["Tags"]}
    return set(map(int, tags.get("instances", "").split()))


def _first_key(attempt: TrainingJob) -> str:
    """Return the key that a training job had before it was deleted."""
    return key_of(attempt.name.split()[0], attempt.site)


class LeaseOrder:
    """A late lease holder changes nothing: what holders write takes effect in the order in which they sent it."""

    def __init__(self) -> None:
        self._holder: object = None
        self._number = 0
        self._broken: str | None = None

    def took_effect(self, holder: object, number: int, *, acquires: bool) -> None:
        """Remembered only: whoever runs now would take an error for one of its own."""
        if not acquires and holder is not self._holder:
            self._broken = "a write took effect after a later holder's"
        elif not acquires and number < self._number:
            self._broken = "a write took effect after a later one of the same holder"
        self._holder, self._number = holder, number

    def check(self) -> None:
        require(not self._broken, "a late lease holder changes nothing", str(self._broken))


class Invariants:
    """Checked whenever rows or SageMaker's jobs have changed."""

    def __init__(self, tables: SimulatedTables, sagemaker: "SimulatedCarriers", setup: Setup) -> None:
        self.lease = LeaseOrder()
        self.accepted: dict[str, str] = {}  # job name -> submission, as its user was told
        self.cancelled: set[str] = set()  # submissions whose users were told so
        self.confused: dict[str, str] = {}  # name of an attempt -> submission that cannot tell it from a later one
        self.finished: dict[str, dict[str, Any]] = {}
        self._tables = tables
        self._sagemaker = sagemaker
        self._setup = setup
        self._limits = dict(setup.pools)
        self._promised = dict(setup.pools)  # ... and what it could be when what others use came on top
        sagemaker.limits = self._limits
        self._quotas: dict[tuple[str, str], int] = {}  # project and pool -> slots that interactive jobs may hold
        self._most: int | None = None  # interactive jobs of an owner
        self._counted: dict[str, float] = {}  # external job or warm pool -> since when the queue knows it
        self._attempts: dict[str, tuple[str, int]] = {}  # job name -> submission, attempt
        self._standing: dict[tuple[str, ...], str] = {}  # place of a line row -> job name
        self._places: dict[str, set[tuple[str, ...]]] = {}  # ... and the other way round
        self._accounts: dict[str, dict[tuple[str, ...], int]] = {}  # submission -> place of a history's row -> attempt
        self._ends: dict[str, set[str]] = {}  # job name -> how jobs of the name have ended
        self._decided: set[tuple[str, ...]] = set()  # places of the rows of jobs whose start was checked
        self._replaced: set[str] = set()  # names that another job has had later
        self._stages: dict[str, int] = {}  # submission -> epoch milliseconds of the last recorded stage
        self._entered: dict[str, str] = {}  # submission -> time that orders it among jobs of its priority

    def row(self, name: str) -> dict[str, Any] | None:
        """A job's row as it is."""
        return self._tables.rows.get((JOBS, name))

    def check(self, now: float) -> None:
        """Everything about the jobs that changed."""
        self.lease.check()
        names: dict[str, None] = {}
        for where in self._tables.changed:
            if where == POLICY and "document" in self._tables.rows[where]:
                self._capacity_of(json.loads(self._tables.rows[where]["document"]))
            if where[:2] == (LINES, CONTROL) and where[2].startswith(BACKOFF_PREFIX):
                self._check_quota_lag(where, now)
            if where[:2] == (LINES, ACTIVE):
                self._check_drain(where)
            names |= dict.fromkeys(self._moved(where))
            if where[:2] == (LINES, EXTERNAL):
                self._counted.setdefault(where[2], now)
                if where not in self._tables.rows:
                    self._check_forgotten(where[2], now)
                    del self._counted[where[2]]
        if self._sagemaker.changed:
            launches = map(self._sagemaker.launches.get, self._sagemaker.changed)
            names |= dict.fromkeys(launch.job for launch in launches if launch)
            self._notice_freed_names(now)
            self._check_capacity()
            too_much = self._sagemaker.too_much()
            require(not too_much, "no GPU is given beyond its parts", f"{too_much}")
            self._check_theirs(now)
            self._check_launches(now)
        if any(where[:2] == (LINES, ACTIVE) for where in self._tables.changed):
            if self._setup.together is not None:
                self._check_groups(self._setup.together)
            if self._setup.interactive:
                self._check_interactive()
        self._tables.changed.clear()
        self._sagemaker.changed.clear()
        for name in names:
            if name in self._places or (JOBS, name) in self._tables.rows:
                self._check_job(name, now)

    def check_lease_is_not_of(self, holder: str) -> None:
        """Check that an invocation has given the lease back, if every write of the lease's row took effect at once."""
        row = self._tables.rows.get((LINES, CONTROL, LEASE), {})
        require(row.get("owner") != holder, "an invocation that ends gives its lease back", holder)

    def check_no_cycle_of(self, holder: str) -> None:
        """Check that an invocation that reads the log of a failed attempt does not have the lease."""
        row = self._tables.rows.get((LINES, CONTROL, LEASE), {})
        require(row.get("owner") != holder, "no log is read in a cycle", holder)

    def _check_groups(self, together: int) -> None:
        active = [row for where, row in self._tables.rows.items() if where[:2] == (LINES, ACTIVE) and "group" in row]
        for project in {row["project"] for row in active}:
            names = [row["jobName"] for row in active if row["project"] == project]
            require(len(names) <= together, "no group has more active jobs than it may", f"{names}, {together} may be")

    # --- drained pools ---------------------------------------------------------------------------

    def _check_drain(self, where: tuple[str, ...]) -> None:
        """Check a start when it is recorded. Drains that are stored later stop the job."""
        row = self._tables.rows.get(where)
        if row is None or row["jobState"] != "starting":
            self._decided.discard(where)
            return
        if where in self._decided:
            return
        self._decided.add(where)
        drains, since = drains_from(self._tables.rows.get(POLICY)).by_pool, epoch(row["stateSince"])
        for pool in self.pools_of(row):
            drain = drains.get(pool)
            is_carrier = row.get("carries") is not None
            if drain is None or (is_carrier and not drain.is_in_force(since)):
                continue
            may = drain.at > since and since + (job_from(row).attempt_limit or DAY) <= drain.at
            require(may, "no job starts in a drained pool", f"{row['jobName']} in {pool}, which is {drain}")

    def pools_of(self, row: Mapping[str, Any]) -> list[str]:
        """Return the pools in which an active job has instances; for a member, the pool of its carrier."""
        seat = row.get("seat")
        carrier = self._tables.rows.get((LINES, ACTIVE, seat["carrier"])) if seat else None
        return list((carrier or row)["slots"])

    # --- interactive jobs ------------------------------------------------------------------------

    def _interactive(self) -> tuple[Counter[tuple[str, str]], Counter[str]]:
        """Slots that interactive jobs hold, by project and pool, and the number of them of each owner."""
        held: Counter[tuple[str, str]] = Counter()
        owners: Counter[str] = Counter()
        for where, row in self._tables.rows.items():
            if where[:2] == (LINES, ACTIVE) and row.get("interactive"):
                owners[row["owner"]] += 1
                held.update({(row["project"], pool): int(count) for pool, count in row["slots"].items()})
        return held, owners

    def _allow_interactive(self, policy: dict[str, Any]) -> None:
        """Another policy. What was decided before may stay."""
        held, owners = self._interactive()
        quotas = {(it["name"], pool): count for it in policy["projects"] for pool, count in it["quota"].items()}
        self._quotas = {place: max(quotas.get(place, 0), held[place]) for place in quotas.keys() | held.keys()}
        most = policy.get("interactive", {}).get("max_per_owner", 1)
        self._most = None if most is None else max([most, *owners.values()])

    def _check_interactive(self) -> None:
        held, owners = self._interactive()
        for place, count in held.items():
            most = self._quotas.get(place, 0)
            require(count <= most, "interactive jobs use quota only", f"they hold {count} of {place}, {most} is quota")
        if self._most is not None:
            too_many = {owner: count for owner, count in owners.items() if count > self._most}
            require(not too_many, "no owner has more interactive jobs at a time", f"{too_many}, {self._most} may be")

    # --- capacity --------------------------------------------------------------------------------

    def _capacity_of(self, policy: dict[str, Any]) -> None:
        """Another policy. What was decided before may stay, and what others use now."""
        self._allow_interactive(policy)
        held: dict[str, int] = {}
        for where, row in self._tables.rows.items():
            for pool, count in row["slots"].items() if where[:2] == (LINES, ACTIVE) else ():
                held[pool] = held.get(pool, 0) + count
        for name in self._sagemaker.warm_names():
            for kind, count in self._sagemaker.jobs[name].instance_counts.items():
                pool = self._setup.pool_of(kind, site_in(name))
                held[pool] = held.get(pool, 0) + count
        used, own = self._sagemaker.in_use(), self._sagemaker.in_use(self._sagemaker.theirs)
        for pool in policy["pools"]:
            name = pool["name"]
            others = 0 if self._setup.adversary else used.get(name, 0) - own.get(name, 0)  # see `_check_capacity`
            self._limits[name] = max(pool["capacity"], held.get(name, 0) + others)
        for where, row in self._tables.rows.items():
            for kind, count in row["demand"].items() if where[:2] == (LINES, EXTERNAL) else ():
                name = self._setup.pool_of(kind, site_in(where[2]))
                held[name] = held.get(name, 0) + count
        for pool in policy["pools"]:
            self._promised[pool["name"]] = max(pool["capacity"], held.get(pool["name"], 0))

    def _check_capacity(self) -> None:
        theirs: set[str] = set()
        if self._setup.adversary or self._sagemaker.again:
            # Others start whenever they like, late calls land whenever they do, and on the instances that they leave,
            # others start.
            theirs = self._sagemaker.again | (self._sagemaker.theirs if self._setup.adversary else set())
            theirs = theirs | {new for old, new in self._sagemaker.reused.items() if old in theirs}
        used = self._sagemaker.in_use(theirs)
        for pool, limit in self._limits.items():
            if used.get(pool, 0) > limit:
                alive, warm = self._sagemaker.alive_names(), self._sagemaker.warm_names()
                found = f"{used[pool]} instances of {pool} of {limit} are used, by {alive}, and kept warm by {warm}"
                require(False, "slots used never exceed capacity", found)  # noqa: FBT003

    def _check_launches(self, now: float) -> None:
        if (blocked := self._sagemaker.blocked) is not None:
            self._sagemaker.blocked = None
            warm = [name for name in self._sagemaker.warm_names() if self._sagemaker.reported_warm_until(name) > now]
            theirs = [name for name in self._sagemaker.alive_names() if name in self._sagemaker.theirs]
            row = self.row(blocked.rpartition("-qstamp-")[0]) or {}
            # Who starts whenever they like may do so after a launch was decided that is still being asked for.
            decided = epoch(row["stateSince"]) if self._setup.adversary and "stateSince" in row else now
            met = [*warm, *theirs]  # none, if a warm pool has expired while the answer was awaited
            known = met and all(self._counted.get(name, now) < decided - LAMBDA_SECONDS for name in met)
            require(not known, "no launch meets instances of which the queue knows", f"{blocked} met {warm}")
        changed = self._sagemaker.changed_launches
        require(not changed, "all calls that may launch an attempt have the same health check", f"{changed}")
        for name, times in self._sagemaker.refusals.items():
            lately = sum(at > now - 60 for at in times[-MOST_REFUSALS:])
            found = f"{name} was refused {lately} times in a minute"
            require(lately < MOST_REFUSALS, "a refused launch leaves the rate to others", found)

    def _check_theirs(self, now: float) -> None:
        """What others run counts, and is left alone."""
        stopped, self._sagemaker.stopped_theirs = self._sagemaker.stopped_theirs, []
        wrong = [name for name, late in stopped if not self._may_stop(name, now, late=late)]
        require(not wrong, "the queue stops nothing of others", f"{wrong}")
        launched, self._sagemaker.launched = self._sagemaker.launched, []
        for name in launched:
            row = self.row(self._sagemaker.launches[name].job)
            if row is None or launched_in(row) != name or row["jobState"] != "starting":
                continue
            since = epoch(row["stateSince"])
            self._check_promise(name, since)
            self._check_folder(name, row["owner"])

    def _check_forgotten(self, name: str, now: float) -> None:
        """Check that an external job whose record is deleted has ended, and that its instances are not kept warm.

        An invocation may have described an earlier training job of the name. A launch may have been expected on these
        instances, and have got others. A delete that takes effect late may have been sent before this training job was
        created: the next tick counts it again.
        """
        sagemaker, row = self._sagemaker, self.row(name_in(name).rpartition("-qstamp-")[0]) or {}
        if sagemaker.landing or name not in sagemaker.theirs or sagemaker.created[name] >= now - LAMBDA_SECONDS:
            return
        if row.get("jobState") in ACTIVE_STATES and launched_in(row) == name:
            return  # the queue may take it for the attempt, which counts by itself
        here = (it for it in sagemaker.launches if site_in(it) == site_in(name))
        launched = any(sagemaker.created[it] >= now - LAMBDA_SECONDS for it in here)
        kept = name in sagemaker.warm_names() and not launched
        found = f"{name}, which is {'kept warm' if kept else 'alive'}, is forgotten"
        require(sagemaker.jobs[name].ended and not kept, "an external job counts until it is gone", found)

    def _check_quota_lag(self, where: tuple[str, ...], now: float) -> None:
        """Where SageMaker has refused launches for quota lag only, the next try is not far off."""
        row, key = self._tables.rows.get(where), where[2].removeprefix(BACKOFF_PREFIX)
        pool, _, kind = key.partition("/")
        site = self._setup.sites.get(pool)
        at = site.key if site else ""
        kinds = {it for it in self._setup.kinds if self._setup.pool_of(it, at) == pool and kind in ("", it)}
        kinds = {key_of(it, site) for it in kinds}
        since = [self._sagemaker.lag_since[it] for it in kinds & self._sagemaker.lag_since.keys()]
        lags = since and not kinds & self._sagemaker.lacking and min(since) + LONGEST_LAG_SECONDS > now
        if row is not None and lags and not (row.get("atFault") or row.get("unreachable")):
            found = f"{key} waits for {row['until'] - now:.0f} s"
            require(row["until"] <= now + LAG_SECONDS + 1, "while quota comes back, one job is tried every 20 s", found)

    def _notice_freed_names(self, now: float) -> None:
        """Remember whether the queue can tell a new training job from the attempt that was deleted under its name.

        It goes by the time of creation, so it cannot while it has not heard of the attempt, and a minute after that.
        """
        for name in self._sagemaker.changed:
            if name not in self._sagemaker.former or name not in self._sagemaker.created:
                continue
            row = self.row(name.rpartition("-qstamp-")[0])
            if row is None or launched_in(row) != name or name in self.confused:
                continue
            created = self._sagemaker.reported_creation(name)
            heard = epoch(row["started"]) if row.get("started") and row["jobState"] != "starting" else now
            if row["jobState"] in ACTIVE_STATES and created <= heard + CLOCK_SECONDS + 1:
                self.confused[name] = row["submission"]

    def _may_stop(self, name: str, now: float, *, late: bool) -> bool:
        """Return whether the queue may have stopped a training job of others, which took the name of an attempt.

        It stops by names, and does not know that the attempt was deleted until it looks.
        """
        if name not in self._sagemaker.former:
            return False
        row = self.row(name.rpartition("-qstamp-")[0]) or {}
        knows = launched_in(row) != name or row.get("missingSince", now) < now - LAMBDA_SECONDS
        # Others may have copied the tags while a late call of the queue might have launched it again.
        again, created = row.get("late") or {}, self._sagemaker.reported_creation(name)
        late_name = apply_qstamp(row.get("jobName", ""), int(again.get("attempt", 0)))
        is_late = name == launched_in({"trainingJobName": late_name, "site": again.get("site")})
        may_be_own = is_late and created <= again["dead"] + CLOCK_SECONDS
        ended = [it["started"] or it["ended"] for it in row.get("attempts", ()) if launched_in(it) == name]
        may_be_own = may_be_own or any(created <= epoch(it) + CLOCK_SECONDS for it in ended)
        return late or not knows or may_be_own or self.confused.get(name) == row.get("submission", "")

    def _check_folder(self, launched: str, owner: str) -> None:
        """A job writes its checkpoints where no job of another owner does, whichever bucket its request names."""
        folder = self._folder(launched)
        for name in self._sagemaker.alive_launches() if folder else ():
            row = self.row(self._sagemaker.launches[name].job) or {}
            if row.get("owner") in (None, owner) or launched_in(row) != name or self._folder(name) != folder:
                continue
            require(row["jobState"] not in ACTIVE_STATES, "a folder has one owner", f"{launched} and {name}: {folder}")

    def _folder(self, name: str) -> str | None:
        address: str | None = self._sagemaker.requests[name].get("CheckpointConfig", {}).get("S3Uri")
        return address

    def _check_promise(self, launched: str, since: float) -> None:
        """A launch that was decided then has room beside all that the queue has known of for long."""
        known = {
            name
            for name in self._sagemaker.theirs
            if self._counted.get(name, since) < since - LAMBDA_SECONDS
            and not self._sagemaker.jobs[name].ended
            and self._sagemaker.created[name] <= self._counted[name]  # of that name another one may have been counted
        }
        used: dict[str, int] = {}
        for name in {*known, *self._sagemaker.alive_launches(), launched}:
            for kind, count in self._sagemaker.jobs[name].instance_counts.items():
                pool = self._setup.pool_of(kind, site_in(name))
                used[pool] = used.get(pool, 0) + count
        for kind in self._sagemaker.jobs[launched].instance_counts:
            pool = self._setup.pool_of(kind, site_in(launched))
            found = f"{launched} makes {used[pool]} of {self._promised[pool]} in {pool}, beside {sorted(known)}"
            require(used[pool] <= self._promised[pool], "what others use is promised to nobody", found)

    # --- one job ---------------------------------------------------------------------------------

    def _moved(self, where: tuple[str, ...]) -> list[str]:
        """The jobs that a changed row is about."""
        if where[0] == JOBS:
            return [where[1]]
        if where[0] == HISTORY:
            account = self._tables.rows[where]
            self._accounts.setdefault(account["submission"], {})[where] = account["attempt"]
            return [account["job"]]
        if where[1] == "control" and where not in self._tables.rows:  # a waiting queue is forgotten
            forgotten = where[2].removeprefix("line#")
            return [job for place, job in self._standing.items() if place[1] == forgotten]
        if where[1] != ACTIVE and not where[1].startswith("waiting#"):
            return []
        row = self._tables.rows.get(where)
        before, after = self._standing.pop(where, None), row["jobName"] if row else None
        if before:
            self._places[before].discard(where)
        if after:
            self._standing[where] = after
            self._places.setdefault(after, set()).add(where)
        return [name for name in (before, after) if name]

    def _check_job(self, name: str, now: float) -> None:
        row = self.row(name)
        places = self._places.get(name, set())
        if row is None:
            require(name not in self.accepted, "no accepted job vanishes", f"{name} has no row")
            require(not places, "each job is in exactly one queue", f"{name} has items at {places} and no row")
            return
        job = job_from(row)
        self._check_submission(job, now)
        self._check_place(job, places)
        ended = sorted(attempt["attempt"] for attempt in row["attempts"])
        accounts = sorted(self._accounts.get(job.submission, {}).values())
        found = f"{name} has ended the attempts {ended}, the history has {accounts}"
        require(ended == accounts, "each attempt that ended is in the history once", found)
        attempts = self._attempts_of(name)
        alive = [it.key for it in attempts if not it.ended]
        require(len(alive) <= 1, "at most one attempt of a job is alive", f"{name}: {alive}")
        self._check_attempts(job)
        self._check_stage(job)
        self._check_dependencies(job, row, attempts)
        self._check_sizes(job, row)
        fixed = job.interactive and job.evicted_for is not None
        require(not fixed, "an interactive job is never preempted", f"{name} is to make room for {job.evicted_for}")
        self._check_guarantee(job, row)
        if self._setup.regions:
            self._check_regions(job, row)
        if self._setup.deadlines:
            self._check_deadlines(job, row, attempts)
        if self._setup.failures and job.carries is None:
            self._check_failures(job, row)
        preempted = sum(it["outcome"] == "preempted" for it in row["attempts"])
        found = f"{name} counts {len(job.preempted)} preemptions of {preempted}"
        require(len(job.preempted) <= preempted, "a requeue is not counted as a preemption", found)
        hung = sum(it["outcome"] == "hung" for it in row["attempts"])
        found = f"{name} counts {job.hangs} hangs, and {hung} attempts were stopped for it"
        require(hung <= job.hangs <= MOST_HANGS, "hangs are counted, and no job is stopped for them for ever", found)
        if job.state in ("running", "stopping"):
            launched = job.training_job or ""
            ours = self._incarnations(launched, job.submission, job.attempt)
            require(ours, "nothing of others is taken for an attempt", f"{name} says that {launched} is its own")
            if launched in self._sagemaker.again and epoch(job.started or "") >= self._sagemaker.created[launched]:
                self._sagemaker.again.remove(launched)  # the queue has heard of it
        alive = [it for it in alive if it not in self._sagemaker.again]
        if job.state.waits:
            require(not alive, "a slot is free only when SageMaker says so", f"{name} waits while {alive} lives")
            kept = not job.cancelled and job.submission not in self.cancelled
            require(kept, "a cancelled job does not come back", f"{name} waits")
        if job.state.finished:
            require(not alive, "a finished job has ended", f"{name} is {job.state} while {alive} lives")
            self._check_finished(job, row)

    def _check_deadlines(self, job: Job, row: dict[str, Any], attempts: list[TrainingJob]) -> None:
        """By the tags of the request, and by what SageMaker was asked and has run."""
        tags = {tag["Key"]: tag["Value"] for tag in json.loads(row["jobDetails"])["Tags"]}
        if "not_before" in tags:
            early = [it.key for it in attempts if self._sagemaker.created[it.key] < epoch(tags["not_before"])]
            require(not early, "no job starts before its time", f"{early} not before {tags['not_before']}")
        if job.state == "stopping" and job.evicted_for is not None:
            limits = [int(tags["max_preemptions"])] if "max_preemptions" in tags else []
            limits += [MOST_PREEMPTIONS] if self._setup.policy else []
            preempted = sum(it["outcome"] == "preempted" for it in row["attempts"])
            found = f"{job.name} makes room for {job.evicted_for} after {preempted} preemptions"
            most = min(limits, default=preempted + 1)
            require(preempted < most, "no job is preempted more often than allowed", found)
        if "max_total_runtime" in tags and not self._setup.deletions and not self._setup.shared:
            self._check_total_runtime(int(tags["max_total_runtime"]), job, attempts)

    def _check_total_runtime(self, total: int, job: Job, attempts: list[TrainingJob]) -> None:
        """Each attempt gets at most what the attempts before it have left of the total, and a minute at least.

        An attempt whose tags a person has changed before the queue heard of it may count or not.
        """
        left, sagemaker = float(total), self._sagemaker
        launched = [it for it in attempts if sagemaker.launches[it.key].submission == job.submission]
        own = {it.key: it for it in launched if it.key not in sagemaker.unclear}
        for attempt in sorted(own.values(), key=lambda it: self._sagemaker.launches[it.key].attempt):
            limit = self._sagemaker.requests[attempt.key]["StoppingCondition"]["MaxRuntimeInSeconds"]
            found = f"{attempt.name} may run for {limit} s, and {left:.0f} s are left of {total}"
            require(limit <= max(LEAST_RUNTIME_SECONDS, left + 1), "attempts do not exceed the total runtime", found)
            require(left > 0, "no attempt begins when the total runtime is used up", found)
            if attempt.began is not None and attempt.ended_at is not None:
                left -= attempt.ended_at - attempt.began

    # --- regions ---------------------------------------------------------------------------------

    def _check_regions(self, job: Job, row: dict[str, Any]) -> None:
        """By the request of the user and by SageMaker's training jobs, not by the sites that the queue has recorded.

        An attempt that was deleted, or whose tags were changed, before the queue has heard of it may be launched again.
        """
        launches, request = self._sagemaker.launches, json.loads(row["jobDetails"])
        attempts = self._attempts_of(job.name, job.submission)
        unknowable = self._sagemaker.unclear | self._sagemaker.deleted_at.keys()
        sites: dict[int, set[str]] = {}
        for attempt in attempts:
            if attempt.key not in unknowable:
                sites.setdefault(launches[attempt.key].attempt, set()).add(site_in(attempt.key))
        twice = {number: where for number, where in sites.items() if len(where) > 1}
        require(not twice, "an attempt exists in at most one region", f"{job.name}: {twice}")
        there = [it for it in attempts if it.site is not None]
        project, fixed = tags_of(row).get("project", ""), "VpcConfig" in request or "elsewhere" in str(request)
        stays = fixed or project not in REPLICATED
        found = f"{job.name} of {project}: {[it.key for it in there]}"
        require(not (there and stays), "a job with data of one region is never launched elsewhere", found)
        for attempt in there:
            addresses = re.findall(r"s3://([^/']+)", str(self._sagemaker.requests[attempt.key]))
            found = f"{attempt.key} has the buckets {addresses}"
            local = BUCKETS[OTHER_REGION]
            require(set(addresses) == {local}, "an attempt has the buckets of its region", found)
        if "CheckpointConfig" in request and not REPLICATED.get(project, True):
            self._check_resumptions(job, sorted(attempts, key=lambda it: launches[it.key].attempt))

    def _check_resumptions(self, job: Job, attempts: list[TrainingJob]) -> None:
        ran_at: str | None = None
        for attempt in attempts:
            found = f"{attempt.key} began after an attempt in the region {ran_at or 'of the queue'!r}"
            same = ran_at in (None, site_in(attempt.key))
            require(same, "a job whose checkpoints are in one region resumes there", found)
            known = {*self._sagemaker.unclear, *self._sagemaker.again, *self._sagemaker.deleted_at, *self.confused}
            if attempt.key in known or _first_key(attempt) in known:
                return  # the queue cannot know all about it
            if attempt.began is not None and attempt.ended_at is not None and attempt.ended_at >= attempt.began + 1:
                ran_at = site_in(attempt.key)

    # --- failures --------------------------------------------------------------------------------

    def _check_failures(self, job: Job, row: dict[str, Any]) -> None:
        """By SageMaker's reasons and times, the tags of the request and the rules of the policies."""
        orders = Orders.of(row["jobDetails"], self._failure_rules_for(job.project))
        found = f"{job.name} has used {job.retried} of {orders.retries} retries"
        require(job.retried <= orders.retries == job.retries, "no job has more retries than allowed", found)
        entered = self._entered.setdefault(job.submission, job.entered)
        require(job.entered == entered, "a job keeps its place after a failure", f"{job.name} entered {job.entered}")
        classes = {it["attempt"]: it.get("failureClass") for it in row["attempts"]}
        for where, number in self._accounts.get(job.submission, {}).items():
            same = self._tables.rows[where].get("failure_class") == classes.get(number)
            require(same, "the history has the class of each failure", f"{job.name}, attempt {number}: {classes}")
        failed = [it for it in row["attempts"] if it["outcome"] == "failed" or it.get("failureClass")]
        truth = [self._incarnations(launched_in(it) or "", job.submission, it["attempt"]) for it in failed]
        if all(map(self._is_clear, truth)):
            self._check_retries(job, failed, [attempt for (attempt,) in truth], orders)
            self._check_instances(job, failed)

    def _check_instances(self, job: Job, failed: list[dict[str, Any]]) -> None:
        """After a hardware failure, SageMaker checks the instances of the next attempt, and they are other ones."""
        is_check_refused = self._setup.refuses_checks or job.submission in self._sagemaker.refused
        if job.gpus is not None or is_check_refused:
            return
        for recorded in failed:
            if recorded.get("failureClass") != "hardware":
                continue
            name, number = launched_in(recorded), recorded["attempt"] + 1
            for following in self._everywhere(apply_qstamp(job.name, number), job.submission, number):
                request = self._sagemaker.requests[following.key]
                checked = "InfraCheckConfig" in request or "InstanceGroups" in request["ResourceConfig"]
                require(checked, "instances are checked after a hardware failure", f"{following.name}: {request}")
                reused = self._sagemaker.reused.get(name or "") == following.key
                sure = not self._setup.faults and not self._setup.adversary  # the release is neither lost nor denied
                require(
                    not (reused and sure), "instances that failed are not used again", f"{following.name} has {name}'s"
                )

    def _is_clear(self, incarnations: list[TrainingJob]) -> bool:
        """Return whether an attempt is one training job, and the queue cannot have taken another one for it."""
        if len(incarnations) != 1:
            return False
        attempt = incarnations[0]
        return not {_first_key(attempt)} & self.confused.keys() and attempt.key not in self._sagemaker.again

    def _check_retries(self, job: Job, failed: list[dict[str, Any]], truth: list[TrainingJob], orders: Orders) -> None:
        counts, said = {Counts()}, f"{job.name} with {orders}"
        for place, (recorded, attempt) in enumerate(zip(failed, truth, strict=True)):
            said += f"; attempt {recorded['attempt']}: {recorded.get('failureClass')}, {recorded['outcome']}"
            is_member = attempt.key in self._sagemaker.carrier_of_member
            require(is_member or attempt.status == "Failed", "only an attempt that failed is recorded as failed", said)
            stopped = attempt.key in self._sagemaker.stopped and not self._setup.adversary
            is_seen = views(
                self._sagemaker.logs.failed.get(attempt.key),
                attempt.failure or "",
                is_log_read=attempt.key in self._sagemaker.logs.read,
                is_member=is_member,
            )
            seen = [view for view in is_seen if view.failure_class == recorded.get("failureClass")]
            require(seen, "the class of a failure is recorded, and it is the reason's or the log's", said)
            may_be_stopped = not stopped or seen[0].failure_class in ("capacity", "internal")
            require(may_be_stopped, "an attempt that the queue has stopped has not failed", said)
            ran = None
            if attempt.began is not None and attempt.ended_at is not None and not is_member:
                ran = attempt.ended_at - attempt.began
            counts = after_failure(counts, recorded["attempt"], seen, ran, orders)
            over = job.state == "failed" and place == len(failed) - 1
            counts = {it for it in counts if (it.action == NEVER) == over}
            require(counts, "a failure ends a job as its class and the rules say, and only then", said)
        if not failed or failed[-1]["outcome"] != "failed":
            return
        same = any((it.used, it.free_in_a_row) == (job.retried, job.free_retried) for it in counts)
        said += f"; counted {job.retried} and {job.free_retried} free, of {sorted(map(str, counts))}"
        require(same, "retries are counted as they were made", said)

    def _failure_rules_for(self, project: str) -> list[Mapping[str, Any]]:
        of_project = self._setup.project_failure_rules if project == self._setup.projects[0] else ()
        return [*of_project, *self._setup.failure_rules]

    def _check_guarantee(self, job: Job, row: dict[str, Any]) -> None:
        """By the ends of its attempts, and not by the preemptions that the queue has counted."""
        if job.state != "stopping" or job.evicted_for is None or job.started is None:
            return
        ends = [epoch(it["ended"]) for it in row["attempts"] if it["outcome"] == "preempted"]
        started, asked = epoch(job.started), epoch(job.since)
        lately = sum(started - DAY + 1 < it for it in ends)
        settings = Settings()  # no policy of a walk has others
        sure = min(settings.preempted_min_runtime * 2 ** (lately - 1), settings.preempted_min_runtime_limit)
        found = f"{job.name} was asked to stop after {asked - started:.0f} s, and is sure of {sure:.0f}"
        holds = not lately or asked >= started + sure - 1
        require(holds, "no job makes room within its guaranteed runtime", found)

    def _check_dependencies(self, job: Job, row: dict[str, Any], attempts: list[TrainingJob]) -> None:
        """By what its user asked for, and not by what the queue has kept of it."""
        if not attempts and not job.state.holds_slots:
            return
        for name, any_outcome in dependencies_of(row):
            ends = self._ends.get(name, set())
            found = f"{job.name} runs, and {name} has ended so far: {sorted(ends)}"
            require(
                ends if any_outcome else "completed" in ends, "nobody runs before its dependencies have ended", found
            )

    def _check_sizes(self, job: Job, row: dict[str, Any]) -> None:
        """By what its user asked for, and by SageMaker's numbers."""
        accepted = sizes_of(row)
        recorded = {launched_in(attempt): attempt["instances"] for attempt in row["attempts"]}
        for attempt in self._attempts_of(job.name, job.submission):
            if (name := _first_key(attempt)) in self.confused or attempt.key in self._sagemaker.again:
                continue
            count = sum(attempt.instance_counts.values())
            found = f"{attempt.name} has {count} instances, its job accepts {accepted}"
            require(not accepted or count in accepted, "an attempt has as many instances as its job accepts", found)
            if attempt.key != name:
                continue  # it was deleted, and a later call for the attempt may have asked for another number
            held = sum(job.slots.values()) if name == job.training_job and job.state.holds_slots else count
            found = f"{attempt.name} has {count} instances, and holds {held}; {recorded.get(name)} are recorded"
            same = count == held == (recorded.get(name, count) or 0)
            require(same, "the queue knows how many instances an attempt has", found)

    def _attempts_of(self, name: str, submission: str | None = None) -> list[TrainingJob]:
        """A job's training jobs, by the order in which they were launched, whatever their tags say."""
        return [
            self._sagemaker.jobs[attempt]
            for attempt, launch in self._sagemaker.launches.items()
            if launch.job == name and submission in (None, launch.submission)
        ]

    def _incarnations(self, name: str, submission: str, attempt: int) -> list[TrainingJob]:
        """The training jobs that the queue has launched as an attempt: several, if some were deleted."""
        launches = ((it, self._sagemaker.launches.get(it)) for it in self._sagemaker.of_name(name))
        wanted = submission, attempt
        own = (it for it, launch in launches if launch and (launch.submission, launch.attempt) == wanted)
        return [self._sagemaker.jobs[it] for it in own]

    def _everywhere(self, name: str, submission: str, attempt: int) -> list[TrainingJob]:
        """The training jobs at all sites that the queue has launched as an attempt."""
        keys = (key_of(name, site) for site in (None, *self._setup.other_sites))
        return [it for key in keys for it in self._incarnations(key, submission, attempt)]

    def _check_submission(self, job: Job, now: float) -> None:
        """Only a finished job whose time is over makes room for another of its name."""
        before = self._attempts.get(job.name)
        if before is None or before[0] == job.submission:
            return
        old = self.finished.pop(job.name, None)
        gone = old is not None and old["expires"] < now + 1
        require(gone, "no accepted job vanishes", f"{job.name} was replaced by another")
        del self._attempts[job.name]
        self._replaced.add(job.name)
        self.accepted.pop(job.name, None)

    def _check_place(self, job: Job, places: set[tuple[str, ...]]) -> None:
        key = live_key(job)
        expected = {(LINES, key["line"], key["position"])} if key else set()
        found = f"{job.name} ({job.state}) has items at {sorted(places)}, not at {sorted(expected)}"
        require(places == expected, "each job is in exactly one queue", found)
        for where in places:
            require(job_from(self._tables.rows[where]) == job, "a job's two items agree", f"{job.name} at {where}")
            if job.state.waits:
                known = (LINES, "control", f"line#{where[1]}") in self._tables.rows
                require(
                    known, "each job is in exactly one queue", f"{job.name} waits in the forgotten queue {where[1]}"
                )

    def _check_attempts(self, job: Job) -> None:
        _, before = self._attempts.get(job.name, (job.submission, 1))
        found = f"{job.name} went from {before} to {job.attempt}"
        require(job.attempt >= before, "attempts count upward", found)
        for number in range(before, job.attempt):
            stamped = apply_qstamp(job.name, number)
            of_name = [self._sagemaker.of_name(key_of(stamped, site)) for site in (None, *self._setup.other_sites)]
            passed = [it for names in of_name if not self._sagemaker.theirs.intersection(names) for it in names]
            if not passed and any(of_name):
                continue
            if not passed and job.gpus is not None:
                continue  # its carrier ended before it was assigned
            told = {it: self._sagemaker.jobs[it].status for it in passed if it not in self._sagemaker.again}
            found = f"attempt {number} of {job.name} was passed over while SageMaker says {told}"
            ended = told and all(self._sagemaker.jobs[it].ended for it in told)
            require(ended, "attempts count upward, when SageMaker says that one ended", found)
        self._attempts[job.name] = (job.submission, job.attempt)

    def _check_stage(self, job: Job) -> None:
        """Only SageMaker's own reports of the recorded attempt change its stage, and never back in time."""
        before = self._stages.pop(job.submission, 0)
        if not job.stage_at:
            return
        require(job.state.holds_slots, "only an attempt has a stage", f"{job.name} is {job.state}")
        if job.training_job in self.confused:
            return  # the queue cannot tell the reports of another training job from those of the attempt
        told = [
            it
            for name in self._sagemaker.of_name(job.training_job or "")
            for it in self._sagemaker.stages.get(name, ())
        ]
        found = f"{job.launched} has {job.stage} since {job.stage_at}, reported were {told}"
        require((job.stage_at, job.stage) in told, "a stage is what SageMaker has reported of the attempt", found)
        require(job.stage_at >= before, "no late report turns a stage back", f"{found}; before, since {before}")
        self._stages[job.submission] = job.stage_at

    # --- finished --------------------------------------------------------------------------------

    def _check_finished(self, job: Job, row: dict[str, Any]) -> None:
        if job.name in self.finished:
            found = f"{job.name}: {self.finished[job.name]} became {row}"
            require(row == self.finished[job.name], "a finished row never changes", found)
            return
        self.finished[job.name] = dict(row)
        self._ends.setdefault(job.name, set()).add(job.state.value)
        if job.carries is not None:
            return  # its members' ends are what counts
        attempts = self._attempts_of(job.name, job.submission)
        if job.submission in self.confused.values():
            return  # what has the name of an attempt may have ended in any way
        attempts = [it for it in attempts if it.key not in self._sagemaker.again and not self._is_unheard_of(it, row)]
        clear = [it for it in attempts if it.key not in self._sagemaker.unclear]
        try:
            self._check_outcome(job, attempts, row)
        except ViolationError:
            if clear == attempts:
                raise
            self._check_outcome(job, clear, row)  # the queue could not know that they were its own
        ends = [it for it in row["history"] if it["state"] in ("completed", "failed", "stopped")]
        require(len(ends) == 1, "a finished job has one outcome", f"{job.name}: {ends}")

    def _check_outcome(self, job: Job, attempts: list[TrainingJob], row: dict[str, Any]) -> None:
        last = max(attempts, key=lambda it: self._sagemaker.launches[it.key].attempt, default=None)
        said = f"{job.name} is {job.state} ({job.reason}), SageMaker says {[(it.key, it.status) for it in attempts]}"
        outcome = "a finished job has one outcome, and it is SageMaker's"
        untold = [it for it in attempts if self._is_untold(it, row)]
        completed = any(it.status == "Completed" for it in attempts if it not in untold or job.state == "completed")
        require(completed == (job.state == "completed"), outcome, said)
        for it in untold:
            recorded = {ended["outcome"] for ended in row["attempts"] if ended["attempt"] == self._number(it)}
            kept = recorded <= {"stopped", *INTERRUPTED, it.status.lower()}
            require(kept, "an attempt that was deleted before its end was known has not failed", f"{said} {recorded}")
        refused = job.submission in self._sagemaker.refused
        if job.state == "failed":
            require(last.status == "Failed" if last else refused, outcome, said)
            made_room = last is not None and last.key in self._sagemaker.stopped
            require(not made_room, "nobody fails who was asked to make room", said)
            refused_late = last is not None and "ValidationException" in (job.reason or "")
            require(not refused_late, "nobody is refused for good who was accepted once", said)
        if job.state == "stopped" and not self._ended_by_deadline(job, row, attempts):
            cancelled = job.cancelled or job.submission in self.cancelled or "cancelled" in (job.reason or "")
            if last is None and not cancelled:
                asked = dependencies_of(row)
                broken = any(not it[1] and self._ends.get(it[0], set()) - {"completed"} for it in asked)
                forgotten = any(not it[1] and it[0] in self._replaced for it in asked)
                require(broken or forgotten, "a dependent is stopped if it can never start, and only then", said)
                return
            by_itself = last and (last.secondary == "MaxRuntimeExceeded" or last.key in self._sagemaker.by_hand)
            require(cancelled or by_itself or last in untold, outcome, said)
            made_room = last in untold and row["history"][-2]["state"] == "stopping"
            told_late = by_itself and "MaxRuntimeInSeconds" in (job.reason or "")  # by an event after the deletion
            require(cancelled or told_late or not made_room, "a job that was asked to make room is preempted", said)

    def _ended_by_deadline(self, job: Job, row: dict[str, Any], attempts: list[TrainingJob]) -> bool:
        """Return whether a stopped job had not started in time, or its attempts have used up its total runtime.

        A member that ended without a report counts as not started, unless the queue has recorded it as running.
        """
        tags = {tag["Key"]: tag["Value"] for tag in json.loads(row["jobDetails"])["Tags"]}
        if job.start_missed and tags.get("start_by_action") == "cancel":
            recorded = any(it["state"] == "running" for it in row["history"])
            known = [it for it in attempts if recorded or it.key not in self._sagemaker.untold]
            had_instances = [it.name for it in known if it.began is not None]
            late = epoch(row["stateSince"]) >= epoch(tags["start_by"])
            found = f"{job.name} ended {row['stateSince']}, to start by {tags['start_by']}; ran: {had_instances}"
            require(late and not had_instances, "a job is stopped for its start only if it has missed it", found)
            return True
        if "max_total_runtime" not in tags or "max_total_runtime" not in (job.reason or ""):
            return False
        ran = sum(it.ended_at - it.began for it in attempts if it.began is not None and it.ended_at is not None)
        spent = ran + len(attempts) >= int(tags["max_total_runtime"]) or self._setup.deletions or self._setup.shared
        out_of_time = any(it.secondary == "MaxRuntimeExceeded" for it in attempts)
        found = f"{job.name} is stopped ({job.reason}) after {ran:.0f} s"
        require(spent or out_of_time, "a job is stopped for its total runtime only if that is used up", found)
        return True

    def _number(self, attempt: TrainingJob) -> int:
        return self._sagemaker.launches[attempt.key].attempt

    def _is_unheard_of(self, attempt: TrainingJob, row: dict[str, Any]) -> bool:
        """Return whether an attempt was deleted before the queue heard that SageMaker had launched it."""
        recorded = any(launched_in(it) == _first_key(attempt) for it in row["attempts"])
        return attempt.key in self._sagemaker.deleted_at and not recorded

    def _is_untold(self, attempt: TrainingJob, row: dict[str, Any]) -> bool:
        """Return whether an attempt was deleted so long before its recorded end that no event can have told of it."""
        deleted = self._sagemaker.deleted_at.get(attempt.key)
        ends = [it["ended"] for it in row["attempts"] if it["attempt"] == self._number(attempt)]
        return deleted is not None and any(epoch(it) >= deleted + MISSING_SECONDS - 1 for it in ends)
