"""DynamoDB and SageMaker as the world has them: every call goes through the world, which decides its fate."""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from job_queue.adapters.dynamodb import Item, Key, Put, Update, Write, try_again
from job_queue.adapters.lookups.training_list import ListedJob
from job_queue.adapters.sagemaker import LaunchResult, StopResult, TrainingJob
from job_queue.domain.errors import SiteSilent, Unavailable
from job_queue.domain.fleet.sites import Site, key_of, name_in
from job_queue.domain.job import WarmPool
from job_queue.domain.names import ATTEMPT_TAG, JOB_TAG, QUEUE_NAME, QUEUE_TAG, SUBMISSION_TAG
from job_queue.domain.requests.training_request import TrainingRequest
from local_cloud.dynamodb.key_throttle import KeyAccess, KeyLimits, PartitionKey
from tests.fake_sagemaker import FakeTraining, quota_refusal, refusal
from tests.memory_tables import place_of
from tests.metered_tables import UnitTables, again
from tests.torture.faults import SIGNATURE_SECONDS, Call, Fault
from tests.torture.simulated_logs import SimulatedLogs

REFUSALS = {
    Fault.CAPACITY: LaunchResult.NO_CAPACITY,
    Fault.QUOTA: LaunchResult.NO_QUOTA,
    Fault.DENIED: LaunchResult.NOT_NOW,
    Fault.THROTTLED: LaunchResult.THROTTLED,
    Fault.UNREACHABLE: LaunchResult.UNREACHABLE,
}
_TIMES = ("created", "modified", "provisioned_at", "began", "ended_at")
_EVENT_TIMES = ("CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime")
Ask = Callable[[Call], Any]
RELEASE_SECONDS = 25  # that SageMaker may need to end a warm pool
ENDING = "it matches nobody"
UNUSED = "current utilization of 0 Instances"  # what a refusal says that is no quota lag
ACCOUNT, REGION = "123456789012", "us-east-1"  # of the queue
PLACE = "(account and region)"  # in the simulated detail of an event; no field of SageMaker has this name
JOBS, LINES, HISTORY = "sagemaker-queue", "sagemaker-queue-lines", "sagemaker-queue-history"


@dataclass(frozen=True, slots=True)
class Launch:
    """A training job that the queue has created, whatever its tags say now."""

    job: str
    submission: str
    attempt: int
    tags: dict[str, str]  # that it was created with


def _no_answer(*_: object) -> Any:
    raise Unavailable("simulated")


def _no_list(fault: Fault | None = None) -> Any:
    if fault is Fault.THROTTLED:
        raise Unavailable("simulated")
    raise SiteSilent("simulated")


class SimulatedTables(UnitTables):
    """Tables that remember which rows changed.

    :param ask: makes a call for whoever runs now.
    :param taking_effect: told of each transaction before it is applied.
    :param limits: of each partition key; None: no key is throttled.
    :param wait: waits for so many seconds before a throttled call is made again.
    :param metered: says whether units count now: the simulation itself reads for free.
    """

    def __init__(
        self,
        ask: Ask,
        taking_effect: Callable[[Sequence[Write]], Callable[[], None]],
        limits: KeyLimits | None,
        clock: Callable[[], float],
        wait: Callable[[float], None],
        metered: Callable[[], bool],
    ) -> None:
        super().__init__(limits, clock)
        self._metered = metered
        self._wait = wait
        self.changed: dict[tuple[str, ...], None] = {}  # in order, so that every run is the same
        self._ask = ask
        self._taking_effect = taking_effect
        self._digest: int | None = None

    def get(self, table: str, key: Key) -> Item | None:
        found: Item | None = self._call("get", "/".join(key.values()), partial(super().get, table, key))
        return found

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        found: list[Item] = self._call("query", line, partial(super().query, table, line, limit, after))
        return found

    def update(self, update: Update) -> Item:
        effect = self._effect([update], transactional=False)
        changed: Item = self._call("update", "/".join(update.key.values()), effect)
        return changed

    def transact(self, writes: Sequence[Write]) -> None:
        words = ", ".join("/".join(_key(write).values()) for write in writes)
        call = Call("transact", words, self._effect(writes, transactional=True), _no_answer, _no_answer)
        try_again(lambda: self._ask(call), self._wait)

    def _effect(self, writes: Sequence[Write], *, transactional: bool) -> Callable[[], Item | None]:
        applied = self._taking_effect(writes)

        def effect() -> Item | None:
            self._apply(writes, transactional=transactional)
            applied()
            return self.rows.get(place_of(writes[0].table, _key(writes[0])))

        return effect

    def _call(self, kind: str, words: str, effect: Callable[[], Any]) -> Any:
        call = Call(kind, words, effect, _no_answer, _no_answer)
        return again(lambda: self._ask(call), self._wait)

    def _admit(self, access: KeyAccess, keys: Sequence[PartitionKey]) -> None:
        if self._metered():
            super()._admit(access, keys)

    def charge(self, access: KeyAccess, units: Mapping[PartitionKey, float]) -> None:
        if self._metered():
            super().charge(access, units)

    def _measure(self, rows: Sequence[Item], writes: Sequence[Write]) -> None:
        """Rows are small here, and there are very many."""

    def _given(self, row: Item) -> Item:
        """The row itself, which writes replace and nobody changes: copies would be a tenth of the time."""
        return row

    def _keep(self, place: tuple[str, ...], row: Item | None) -> None:
        super()._keep(place, row)
        self.changed[place] = None
        self._digest = None

    def digest(self) -> int:
        """The same for the same rows."""
        if self._digest is None:
            self._digest = hash(repr(sorted(self.rows.items())))
        return self._digest


def _key(write: Write) -> Key:
    if not isinstance(write, Put):
        return write.key
    return {name: write.item[name] for name in (("jobName",) if write.table == JOBS else ("line", "position"))}


def site_in(key: str) -> str:
    """Return the key of the site of a training job; empty: the home site."""
    return key.partition("@")[2]


def launched_in(row: Mapping[str, Any]) -> str | None:
    """Return the key of the training job that a job's row, or its record of an ended attempt, names."""
    name: str | None = row.get("trainingJobName")
    return key_of(name, Site(**row["site"])) if name and row.get("site") else name


def _with_times_of(job: TrainingJob, ahead: float) -> TrainingJob:
    """Return a training job with its times on a clock that is so many seconds ahead."""
    times: dict[str, float | None] = {name: getattr(job, name) for name in _TIMES}
    warm = job.warm and replace(job.warm, until=job.warm.until + int(ahead))
    later: dict[str, Any] = {name: time + ahead for name, time in times.items() if time is not None}
    return replace(job, warm=warm, **later)


def _as_listed_there(job: ListedJob, ahead: float) -> ListedJob:
    """Return an entry of the list as the site shows it, whose clock is so many seconds ahead."""
    modified = None if job.modified is None else job.modified + ahead
    return replace(job, name=name_in(job.name), created=job.created + ahead, modified=modified)


def _event_times(event: Mapping[str, Any], ahead: int) -> dict[str, Any]:
    """Return the times of an event on a clock that is so many milliseconds ahead."""
    times = {name: type(event[name])(int(event[name]) + ahead) for name in _EVENT_TIMES if name in event}
    stages = event.get("SecondaryStatusTransitions")
    if stages is None:
        return times
    return {**times, "SecondaryStatusTransitions": [{**it, "StartTime": it["StartTime"] + ahead} for it in stages]}


class SiteView:
    """SageMaker at another site, as the queue calls it."""

    def __init__(self, sagemaker: "SimulatedSageMaker", site: Site) -> None:
        self._sagemaker = sagemaker
        self._site = site

    def create(self, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        return self._sagemaker.create(request, self._site)

    def stop(self, name: str) -> StopResult:
        return self._sagemaker.stop(name, self._site)

    def describe(self, name: str) -> TrainingJob | None:
        return self._sagemaker.describe(name, self._site)

    def release(self, name: str) -> bool:
        return self._sagemaker.release(name, self._site)

    def training_jobs(self) -> "SiteView":
        return self

    def newest_first(self, before: int | None = None) -> Iterator[list[ListedJob]]:
        return self._sagemaker.newest_first(before, self._site)


class SimulatedSageMaker(FakeTraining):
    """SageMaker at all sites, whose truth the invariants are about.

    Training jobs are kept by their keys: the name, and the site unless that is the home site.

    :param pool_of: the pool that instances of a type count in at a site, which is given by its key.
    """

    def __init__(self, ask: Ask, pool_of: Callable[[str, str], str]) -> None:
        super().__init__()
        self.changed: dict[str, None] = {}  # training jobs, in order, so that every run is the same
        self.poison: set[str] = set()  # jobs whose request it will never take
        self.refused: set[str] = set()  # submissions that it has refused for good
        self.limits: Mapping[str, int] = {}  # instances by pool, as the account's quotas
        self.releases_slowly = False
        self.tells_times = False  # when instances came and attempts ended
        self.was_slow = False  # to release one
        self.quota_lag = 0.0  # seconds for which instances count toward the quota after their job has ended
        self.clock_ahead = 0.0  # seconds that the clock of other sites is ahead of the queue's, whose time is kept here
        self.lag_refusals = 0  # launches that were refused because of it
        self.lag_since: dict[str, float] = {}  # instance type -> when the queue first heard of a refusal for lag
        self.lacking: set[str] = set()  # instance types that were refused for another reason, or did not come
        self._freed: list[tuple[float, str, int]] = []  # epoch seconds, instance type and number of instances
        self.by_hand: set[str] = set()  # training jobs that others than the queue have stopped
        self.unclear: set[str] = set()  # attempts whose tags others changed before the queue had heard of them
        self.deleted_at: dict[str, float] = {}  # training job -> epoch seconds of its deletion, if there was one
        self.former: dict[str, list[str]] = {}  # name -> what the deleted training jobs of that name are called here
        self.stopped_theirs: list[tuple[str, bool]] = []  # just now by the queue, and whether by a late call
        self.again: set[str] = set()  # deleted attempts that another call of the queue has launched again
        self.landing = False  # whether a late call takes effect now, or has just done so
        self.blocked: str | None = None  # a launch just decided on that met instances which are kept warm for others
        self.launches: dict[str, Launch] = {}  # by the name of the training job
        self.launched: list[str] = []  # just now, by calls that were not late
        self.theirs: set[str] = set()  # training jobs that others have created
        self.logs = SimulatedLogs(ask, self._now)
        # attempt -> its stages so far, each with the epoch milliseconds since when SageMaker reports it
        self.stages: dict[str, list[tuple[int, str]]] = {}
        self.trail: list[tuple[str, dict[str, str]]] = []  # names and tags of refused calls
        self.refusals: dict[str, list[float]] = {}  # when it has refused each attempt, throttled calls not counted
        self.refuses_checks = False  # launches with an infrastructure health check
        self.changed_launches: list[str] = []  # attempts whose calls had different health checks
        self._unanswered: dict[str, tuple[float, object]] = {}  # attempt -> its last such call, and its health check
        self._pool_of = pool_of
        self._ask = ask

    def at(self, site: Site | None) -> Any:
        return SiteView(self, site) if site else self

    def create(self, request: Mapping[str, Any], site: Site | None = None) -> tuple[LaunchResult, str]:
        name = key_of(request["TrainingJobName"], site)
        call = Call(
            "create",
            name,
            partial(self._create, request, site),
            lambda: (LaunchResult.UNKNOWN, "timeout"),
            lambda fault: (REFUSALS[fault], refusal(REFUSALS[fault], request)),
            site_in(name),
        )
        check = request.get("InfraCheckConfig")
        sent, earlier = self._unanswered.get(name, (0.0, check))
        if earlier != check and self.clock() < sent + SIGNATURE_SECONDS:
            self.changed_launches.append(name)
            self.changed[name] = None
        self._unanswered[name] = (self.clock(), check)  # until it is answered: its process may be killed
        answer: tuple[LaunchResult, str] = self._ask(call)
        if answer[0] is not LaunchResult.UNKNOWN:
            self._unanswered[name] = (sent, earlier)
        never_arrived = (LaunchResult.LAUNCHED, LaunchResult.UNKNOWN, LaunchResult.UNREACHABLE)
        if answer[0] not in never_arrived:
            self.trail.append((name, _tags(request)))
        if answer[0] not in (LaunchResult.LAUNCHED, LaunchResult.UNKNOWN, LaunchResult.THROTTLED):
            self.refusals.setdefault(name, []).append(self.clock())
        if answer[0] in (LaunchResult.NO_CAPACITY, LaunchResult.NO_QUOTA):
            kinds = [key_of(kind, site) for kind in TrainingRequest.read(request).resources.demand[0]]
            if UNUSED in answer[1]:
                self.lacking.update(kinds)
            else:
                self.lag_since = dict.fromkeys(kinds, self.clock()) | self.lag_since
        return answer

    def stop(self, name: str, site: Site | None = None) -> StopResult:
        unknown, name = lambda *_: StopResult.UNKNOWN, key_of(name, site)
        call = Call("stop", name, partial(self._stop, name), unknown, unknown, site_in(name))
        stopping: StopResult = self._ask(call)
        return stopping

    def describe(self, name: str, site: Site | None = None) -> TrainingJob | None:
        name = key_of(name, site)
        call = Call("describe", name, partial(self.known, name), _no_answer, _no_answer, site_in(name))
        found: TrainingJob | None = self._ask(call)
        return _with_times_of(found, self._ahead_at(site)) if found and site else found

    def release(self, name: str, site: Site | None = None) -> bool:
        may_not, name = lambda fault: fault is not Fault.DENIED and _no_answer(), key_of(name, site)
        call = Call("release", name, partial(self._release, name), _no_answer, may_not, site_in(name))
        asked: bool = self._ask(call)
        return asked

    def newest_first(self, before: int | None = None, site: Site | None = None) -> Iterator[list[ListedJob]]:
        where, ahead = site.key if site else "", self._ahead_at(site)

        def newest() -> list[ListedJob]:
            listed = next(FakeTraining.newest_first(self, None if before is None else before - int(ahead)))
            return [_as_listed_there(it, ahead) if where else it for it in listed if site_in(it.name) == where]

        yield self._ask(Call("list", where, newest, _no_list, _no_list, where))

    # --- the truth -------------------------------------------------------------------------------

    def reported_creation(self, name: str) -> float:
        """Return when a training job was created, in epoch seconds on the clock of its site."""
        return self.created[name] + self._ahead_at(self.jobs[name].site)

    def reported_warm_until(self, name: str) -> float:
        """Return until when a warm pool is kept, in epoch seconds on the clock of its site."""
        return self.warm_pools[name].until + int(self._ahead_at(self.jobs[name].site))

    def _ahead_at(self, site: Site | None) -> float:
        """Return the seconds that the clock of a site is ahead of the queue's."""
        return self.clock_ahead if site else 0.0

    def alive_names(self) -> list[str]:
        return [name for name, job in self.jobs.items() if not job.ended]

    def warm_names(self) -> list[str]:
        """Training jobs that have ended, and whose instances are kept."""
        return [name for name, pool in self.warm_pools.items() if pool.until > self.clock()]

    def in_use(self, but: Container[str] = ()) -> dict[str, int]:  # type: ignore[override]
        """Instances by pool, those included that are kept warm.

        :param but: training jobs that do not count.
        """
        used: dict[str, int] = {}
        for name in [*self.alive_names(), *self.warm_names()]:
            for kind, count in self.jobs[name].instance_counts.items() if name not in but else ():
                pool = self._pool_of(kind, site_in(name))
                used[pool] = used.get(pool, 0) + count
        return used

    def event(self, name: str) -> dict[str, Any]:
        """The detail of an event, with the account and region of the training job if they are not the queue's."""
        event, site = super().event(name), self.jobs[name].site
        if site is None:
            return event
        place = {"TrainingJobName": self.jobs[name].name, PLACE: (site.account, site.region)}
        return {**event, **place, **_event_times(event, round(self._ahead_at(site) * 1000))}

    def end(self, name: str, status: str = "Completed", secondary: str = "", failure: str | None = None) -> None:
        super().end(name, status, secondary, failure)
        if self.tells_times and not (failure or "").startswith("CapacityError") and name in self.launches:
            self.run(name, self.created[name], self.clock())
        if (failure or "").startswith("CapacityError"):
            self.warm_pools.pop(name, None)
            self._lack(name)
        self._free(name, self.clock())
        self.changed[name] = None

    def progress(self, name: str, secondary: str) -> None:
        super().progress(name, secondary)
        if name in self.launches and name not in self.theirs:
            at = (self.jobs[name].modified or 0) + self._ahead_at(self.jobs[name].site)
            self.stages.setdefault(name, []).append((round(at * 1000), secondary))

    def starve(self, name: str, secondary: str = "Stopped") -> None:
        super().starve(name, secondary)
        self.jobs[name] = replace(self.jobs[name], began=None, ended_at=None)  # its instances never came
        self._lack(name)
        if self.warm_pools.pop(name, None):
            self._free(name, self.clock())

    def _lack(self, name: str) -> None:
        self.lacking.update(key_of(kind, self.jobs[name].site) for kind in self.jobs[name].instance_counts)

    def delete(self, name: str, *, keeps_trace: bool = True) -> bool:
        if not super().delete(name, keeps_trace=keeps_trace):
            return False
        self.deleted_at[name] = self.clock()
        return True

    def forget(self, name: str) -> None:
        """Keep what is known of a deleted training job, under a name that no training job can have."""
        kept_name = f"{name_in(name)} deleted {len(self.deleted_at)} {self.clock():.0f}"
        kept = key_of(kept_name, self.jobs[name].site)
        del self.deletions[name]
        self.traceless.discard(name)
        of_names: tuple[dict[str, Any], ...] = (
            *(self.jobs, self.requests, self.created),
            *(self.launches, self.deleted_at, self.stages),
        )
        for known in (*of_names, self.reused):
            if name in known:
                known[kept] = known.pop(name)
        self.logs.rename(name, kept)
        for names in (self.stopped, self.theirs, self.by_hand, self.unclear, self.again):
            if name in names:
                names.remove(name)
                names.add(kept)
        self.reused = {old: kept if new == name else new for old, new in self.reused.items()}
        self.jobs[kept] = replace(self.jobs[kept], name=kept_name)
        self.former.setdefault(name, []).append(kept)

    def names(self) -> list[str]:
        """The training jobs that SageMaker knows."""
        return list(filter(self._is_known, self.jobs))

    def of_name(self, name: str) -> list[str]:
        """What the training jobs are called here that have this name, or had it."""
        return [*self.former.get(name, ()), *([name] if name in self.jobs else [])]

    def page(self, names: list[str]) -> list[ListedJob]:
        return super().page(list(filter(self._is_known, names)))

    def _is_known(self, name: str) -> bool:
        return name not in self.deleted_at or name in self.deletions

    def start_external(self, request: Mapping[str, Any], site: Site | None = None) -> bool:
        """Somebody starts a training job past the queue. False: its name is taken."""
        started, key = self._start(request, site), key_of(request["TrainingJobName"], site)
        if started:
            self.theirs.add(key)
        self.changed[key] = None
        return started

    def tag(self, name: str, tags: Mapping[str, str]) -> None:
        """A training job has these tags from now on, whoever it belongs to."""
        self.jobs[name] = replace(self.jobs[name], tags=dict(tags))
        self.changed[name] = None

    def alive_launches(self) -> list[str]:
        """Training jobs of the queue that have not ended. It has not decided on what late calls launch again."""
        return [name for name in self.alive_names() if name in self.launches and name not in self.again]

    def _create(self, request: Mapping[str, Any], site: Site | None = None) -> tuple[LaunchResult, str]:
        tags, name = _tags(request), key_of(request["TrainingJobName"], site)
        if tags[JOB_TAG] in self.poison:
            self.refused.add(tags[SUBMISSION_TAG])
            return LaunchResult.REFUSED, "ValidationException: no such image"
        if self.refuses_checks and request.get("InfraCheckConfig"):
            return LaunchResult.REFUSED, "ValidationException: InfraCheckConfig is not supported."
        if name not in self.jobs and self._meets_warm_instances(request, site):
            self.blocked = self.blocked or (None if self.landing else name)
            self.changed[name] = None
            return LaunchResult.NO_CAPACITY, refusal(LaunchResult.NO_CAPACITY, request)
        if name not in self.jobs and (words := self._meets_quota_lag(request, site)):
            self.lag_refusals += 1
            self.changed[name] = None
            return LaunchResult.NO_CAPACITY, words
        if not self._start(request, site):
            return LaunchResult.NAME_TAKEN, "ResourceInUse"
        self.launches[name] = Launch(tags[JOB_TAG], tags[SUBMISSION_TAG], int(tags[ATTEMPT_TAG]), tags)
        if not self.landing:
            self.launched.append(name)
        before = [self.launches[it] for it in self.former.get(name, ()) if it in self.launches]
        if any(it.submission == tags[SUBMISSION_TAG] for it in before):
            self.again.add(name)
        self.changed[name] = None
        return LaunchResult.LAUNCHED, ""

    def _start(self, request: Mapping[str, Any], site: Site | None = None) -> bool:
        self._end_warm_pools()
        if site is None:
            return super()._start(request)
        key = key_of(request["TrainingJobName"], site)
        started = super()._start({**request, "TrainingJobName": key})
        if started:
            self.jobs[key] = replace(self.jobs[key], name=request["TrainingJobName"], site=site)
            self.requests[key] = request
        return started

    def _are_together(self, one: str, other: str) -> bool:
        return site_in(one) == site_in(other)

    def _end_warm_pools(self) -> None:
        for name in [name for name, pool in self.warm_pools.items() if pool.until <= self.clock()]:
            until = self.warm_pools.pop(name).until
            self._free(name, until)

    def _free(self, name: str, at: float) -> None:
        """Have the quota lag of instances begin then, unless a warm pool keeps them."""
        if self.quota_lag and name not in self.warm_pools:
            counts, site = self.jobs[name].instance_counts, self.jobs[name].site
            self._freed += [(at, key_of(kind, site), count) for kind, count in counts.items()]

    def _meets_warm_instances(self, request: Mapping[str, Any], site: Site | None) -> bool:
        """Whether it would fit but for instances that are kept warm, and not for it."""
        wanted = TrainingRequest.read(request)
        demand, mine = wanted.resources.demand[0], wanted.footprint
        where = site.key if site else ""
        here = [name for name in self.warm_names() if site_in(name) == where]
        warm = [(self.warm_pools[name], self.jobs[name].instance_counts) for name in here]
        if not warm or any(pool.footprint == mine and counts == demand for pool, counts in warm):
            return False
        kept: Counter[str] = Counter()
        for _, counts in warm:
            kept.update({self._pool_of(kind, where): count for kind, count in counts.items()})
        more: Counter[str] = Counter()
        for kind, count in demand.items():
            more[self._pool_of(kind, where)] += count
        used = self.in_use()
        over = {pool: used.get(pool, 0) + count - self.limits[pool] for pool, count in more.items()}
        return any(count > 0 for count in over.values()) and all(count <= kept[pool] for pool, count in over.items())

    def _meets_quota_lag(self, request: Mapping[str, Any], site: Site | None) -> str | None:
        """Refuse a request that would fit, but for the instances of jobs that have ended. Return SageMaker's words."""
        self._end_warm_pools()
        self._freed = [it for it in self._freed if it[0] + self.quota_lag > self.clock()]
        demand = TrainingRequest.read(request).resources.demand[0]
        for kind, count in demand.items() if self._freed else ():
            where = site.key if site else ""
            holding = {it for it in (*self.alive_names(), *self.warm_names()) if site_in(it) == where}
            used = sum(self.jobs[name].instance_counts.get(kind, 0) for name in holding)
            lagging = sum(number for _, freed, number in self._freed if freed == key_of(kind, site))
            limit = self.limits.get(self._pool_of(kind, where), 0)
            if used + count <= limit < used + count + lagging:
                one = {**request, "ResourceConfig": {"InstanceType": kind, "InstanceCount": count}}
                return quota_refusal(one, limit, used + lagging)
        return None

    def _release(self, name: str) -> bool:
        """Its instances are gone at once, or in a while in which nobody can use them."""
        if name in self.launches and not self._may_touch(name):
            return False
        if self.releases_slowly and name in self.warm_names():
            until = min(self.warm_pools[name].until, int(self.clock()) + RELEASE_SECONDS)
            self.warm_pools[name] = WarmPool(ENDING, until)
            self.was_slow = True
            return True
        was_warm = name in self.warm_names()
        released = super().release(name)
        if was_warm:
            self._free(name, self.clock())
        return released

    def _stop(self, name: str) -> StopResult:
        self.changed[name] = None
        if name in self.jobs and not self.jobs[name].ended and not self._may_touch(name):
            return StopResult.DENIED
        stopped = super().stop(name)
        if stopped is StopResult.ASKED and name in self.theirs:
            self.stopped_theirs.append((name, self.landing))
        return stopped

    def _may_touch(self, name: str) -> bool:
        """What the function's role says."""
        return self.jobs[name].tags.get(QUEUE_TAG) == QUEUE_NAME


def _tags(request: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
