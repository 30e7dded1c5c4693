"""The worlds that are walked through: how large, under which policy, and how often something fails."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from job_queue.domain.fleet.sites import Site
from job_queue.domain.launching.launch_rate import CreateRate
from local_cloud.dynamodb.key_throttle import KeyLimits
from tests.jobs import P5
from tests.queue_harness import FAST
from tests.torture.failure_samples import RULES
from tests.torture.faults import FAULTS, Fault

FAULT_RATES = (0.0, 0.03, 0.1, 0.2, 0.35)  # of all calls; a fifth of the walks meet interleavings only
WRITES = ("transact", "update", "create", "assign", "stop", "release")
KEPT = (60, 600, 1800)  # seconds that instances are kept warm
THROTTLED_SHARE = 0.25  # of the walks
QUOTA_LAGS = (0.0, 0.0, 0.0, 20.0, 60.0, 180.0)  # seconds
CLOCKS_AHEAD = (0.0, 0.0, -50.0, -3.0, 3.0, 50.0)  # seconds
DELETIONS = (0.0, 0.0, 0.0, 0.2, 0.4)
DELETION_SECONDS = (1, 1, 30)
DEADLINES = (*[0.0] * 10, 0.4, 0.8)
DRAINS = (*[0.0] * 10, 0.05, 0.15)
HANGS = (*[0.0] * 10, 0.1, 0.3)
FAILURES = (*[0.0] * 10, 0.15, 0.4)
STAGES = (*[0.0] * 10, 0.3, 0.8)
REQUEUES = (*[0.0] * 10, 0.1, 0.3)
MOST_PREEMPTIONS = 1  # of a job, in walks with deadlines
WINDOWS = (100, 1, 100, 2)
OTHER_REGION = "us-east-2"
ROLE_OF_LAB = "arn:aws:iam::222222222222:role/sagemaker-queue-satellite-us-east-2"
BUCKETS = {"us-east-1": "bucket", OTHER_REGION: "bucket-ohio"}
REPLICATED = {
    "vision": False,
    "nlp": True,
}  # projects with buckets in both regions, and whether checkpoints are in both
ONE_REGION = "solo"  # a project without a bucket in the other region
KINDS = (P5, "ml.g5.48xlarge", "ml.p4d.24xlarge")


class Kind(StrEnum):
    """What most jobs of a walk are."""

    PLAIN = "plain"
    SHARED = "shared"  # they share instances
    INTERACTIVE = "interactive"  # people work in them
    REGIONS = "regions"  # they run in two regions


@dataclass(frozen=True, slots=True)
class Setup:
    """What stays the same throughout a run."""

    capacity: int = 1  # without a policy
    policy: dict[str, Any] | None = None
    jobs: int = 2  # that users will submit
    kinds: tuple[str, ...] = (P5,)  # of instances; each makes a waiting queue of its own
    projects: tuple[str | None, ...] = (None,)
    steps: int = 0
    faults: float = 0.0  # chance that a call fails
    troubles: Mapping[str, tuple[Fault, ...]] = field(default_factory=lambda: FAULTS)  # how each kind of call may
    scarce: float = 0.0  # chance that SageMaker has no capacity for a launch
    others: float = 0.0  # chance that somebody else goes first at a call
    adversary: float = 0.0  # how often somebody does harm, beside all else that happens
    external: bool = False  # whether others start training jobs past the queue
    create_rate: CreateRate = FAST
    dependent: float = 0.0  # chance that a job is to run after others
    together: int | None = None  # how many jobs of a group may be active at a time, where there is one
    elastic: float = 0.0  # chance that a job accepts several numbers of instances
    interactive: float = 0.0  # chance that a job is interactive, where there is a policy
    warm: float = 0.0  # chance that a request has its instances kept warm
    releases_slowly: bool = False  # whether SageMaker takes a while to end a warm pool
    shared: bool = False  # whether instances are shared, and jobs ask for GPUs
    quota_lag: float = 0.0  # seconds for which the instances of a training job count toward the quota after its end
    deletions: float = 0.0  # chance, at each step, that a training job that has ended is deleted
    deletion_seconds: int = 30  # that a deletion takes
    hangs: float = 0.0  # chance, at each step, that a running job hangs and a tick notices it
    requeues: float = 0.0  # chance, at each step, that a user requeues a job, holds it at once or releases it
    deadlines: float = 0.0  # chance that a job has deadlines; then the policies limit preemptions, too
    failures: float = 0.0  # chance, at each step, that an attempt fails in one of many ways
    failure_rules: tuple[Mapping[str, Any], ...] = ()  # of each policy
    project_failure_rules: tuple[Mapping[str, Any], ...] = ()  # of the first project of each policy
    refuses_checks: bool = False  # whether SageMaker refuses to check instances after a hardware failure
    drains: float = 0.0  # chance, at each step, that an admin drains a pool, now or later, or ends a drain
    stages: float = 0.0  # chance, at each step, that a training job reaches another SecondaryStatus
    key_limits: KeyLimits | None = None  # units a second of each partition key; None: no key is throttled
    other_sites: tuple[Site, ...] = ()  # besides the home site
    partitions: float = 0.0  # chance, at each step, that the other region breaks or works again
    clock_ahead: float = 0.0  # seconds that the clock of SageMaker at the other site is ahead of the queue's clock
    waiting: bool = False  # whether invocations whose answer nobody waits for wait until there is more to do

    @property
    def regions(self) -> bool:
        """Whether there are pools of other sites."""
        return bool(self.other_sites)

    @property
    def pools(self) -> dict[str, int]:
        """Capacity by pool."""
        if self.policy is None:
            return {"default": self.capacity}
        return {pool["name"]: pool["capacity"] for pool in self.policy["pools"]}

    def pool_of(self, kind: str, site: str = "") -> str:
        """The pool that instances of a type count in.

        :param site: the key of their site; empty: the home site.
        """
        if self.policy is None:
            return "default"
        if self.other_sites:
            return next(name for name, its in self.sites.items() if (its.key if its else "") == site)
        return str(next(pool["name"] for pool in self.policy["pools"] if pool["instance_type"] == kind))

    @property
    def sites(self) -> dict[str, Site | None]:
        """Sites by pool; None: the home site."""
        pools = self.policy["pools"] if self.policy is not None else []
        return {pool["name"]: _site_of(pool) for pool in pools}


def _site_of(pool: Mapping[str, Any]) -> Site | None:
    return Site(pool.get("region"), pool.get("role")) if pool.get("region") or pool.get("role") else None


def a_setup(rng: random.Random, harm: random.Random | None = None, kind: Kind = Kind.PLAIN) -> Setup:
    """The setup of a walk: small worlds mostly, a fifth of them with a policy; with interactive jobs all of them.

    :param harm: decides whether somebody means harm, and how often they act; None: nobody does.
    """
    faults = rng.choice(FAULT_RATES)
    others = rng.choice((0.0, 0.1, 0.3)) if faults else rng.choice((0.2, 0.5))
    scarce = rng.choice((0.0, 0.0, 0.4)) if faults else 0.0
    steps = rng.randint(15, 60)
    troubles = some_troubles(rng)
    adversary = harm.choice((0.0, 0.0, 0.0, 2.0, 6.0)) if harm else 0.0
    create_rate = rng.choice((FAST, CreateRate(1, 1), CreateRate(1, 5)))
    more = random.Random(str(harm.getstate()[1][:4])) if harm else None  # of its own, so that all else is as it was
    dependent = more.choice((0.0, 0.0, 0.0, 0.5)) if more else 0.0
    together = more.choice((None, None, None, 1)) if more else None
    elastic = more.choice((0.0, 0.0, 0.0, 0.7)) if more else 0.0
    interactive = more.choice((0.0, 0.3, 0.6)) if more else 0.0
    if kind is Kind.INTERACTIVE:
        interactive = 0.5
    warm, releases_slowly = rng.choice((0.0, 0.0, 0.4, 0.8)), rng.random() < 0.3
    if rng.random() < 0.2 or kind is Kind.INTERACTIVE:
        policy = a_policy(rng)
        if more and interactive:
            policy["interactive"] = {"max_per_owner": more.choice((None, 1, 2))}
        return Setup(
            policy=policy,
            jobs=rng.randint(4, 10),
            kinds=KINDS[:2],
            projects=("vision", "nlp"),
            steps=2 * steps,
            faults=faults,
            troubles=troubles,
            scarce=scarce,
            others=others,
            adversary=adversary,
            dependent=dependent,
            together=together,
            elastic=elastic,
            interactive=interactive,
            create_rate=create_rate,
            warm=warm,
            releases_slowly=releases_slowly,
            waiting=True,
        )
    return Setup(
        capacity=rng.choice((1, 1, 2, 3)),
        jobs=rng.choice((2, 2, 3, 4, 6)),
        kinds=KINDS[: rng.randint(1, 3)],
        steps=steps,
        faults=faults,
        troubles=troubles,
        scarce=scarce,
        others=others,
        adversary=adversary,
        dependent=dependent,
        together=together,
        elastic=elastic,
        external=rng.random() < 0.3,
        create_rate=create_rate,
        warm=warm,
        releases_slowly=releases_slowly,
        waiting=True,
    )


def a_shared_setup(rng: random.Random, harm: random.Random) -> Setup:
    """The setup of a walk in which most jobs are members of carriers."""
    faults = rng.choice(FAULT_RATES)
    return Setup(
        policy=a_shared_policy(rng),
        jobs=rng.randint(3, 12),
        kinds=KINDS[:1],
        projects=("vision", "nlp"),
        steps=rng.randint(30, 120),
        faults=faults,
        troubles=some_troubles(rng),
        scarce=rng.choice((0.0, 0.0, 0.4)) if faults else 0.0,
        others=rng.choice((0.0, 0.1, 0.3)) if faults else rng.choice((0.2, 0.5)),
        dependent=rng.choice((0.0, 0.0, 0.0, 0.5)),
        together=rng.choice((None, None, None, 1)),
        create_rate=rng.choice((FAST, CreateRate(1, 1), CreateRate(1, 5))),
        shared=True,
        waiting=True,
        adversary=harm.choice((0, 3, 8)),
    )


def a_regions_setup(rng: random.Random, harm: random.Random) -> Setup:
    """The setup of a walk with a pool of the home site and one of another site, in a third of them another account."""
    faults = rng.choice(FAULT_RATES)
    site = Site(OTHER_REGION, rng.choice((None, None, ROLE_OF_LAB)))
    return Setup(
        policy=a_regions_policy(rng, site),
        jobs=rng.randint(3, 10),
        kinds=KINDS[:1],
        projects=(*REPLICATED, ONE_REGION),
        steps=rng.randint(30, 120),
        faults=faults,
        troubles=some_troubles(rng),
        scarce=rng.choice((0.0, 0.0, 0.4)) if faults else 0.0,
        others=rng.choice((0.0, 0.1, 0.3)) if faults else rng.choice((0.2, 0.5)),
        dependent=rng.choice((0.0, 0.0, 0.0, 0.5)),
        together=rng.choice((None, None, None, 1)),
        external=rng.random() < 0.3,
        create_rate=rng.choice((FAST, CreateRate(1, 1), CreateRate(1, 5))),
        warm=rng.choice((0.0, 0.0, 0.4, 0.8)),
        releases_slowly=rng.random() < 0.3,
        other_sites=(site,),
        partitions=rng.choice((0.03, 0.08, 0.2)) if faults else 0.0,
        waiting=True,
        adversary=harm.choice((0, 0, 3, 8)),
    )


def a_regions_policy(rng: random.Random, site: Site, most: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A pool of each site, two projects whose jobs may run at both, and one whose data are in the home region.

    :param most: instances of each pool at most, so that a job that has run in a pool fits there again; None: as drawn.
    """
    home, far = rng.randint(2, 3), rng.randint(1, 2)
    if most:
        home, far = min(home, most["home"]), min(far, most["ohio"])
    share = rng.randint(0, home)
    there = {"region": site.region, **({"role": site.role} if site.role else {})}
    kept: dict[str, Any] = {"keep_warm": rng.choice(KEPT)} if rng.random() < 0.3 else {}
    quotas = {"vision": {"home": share, "ohio": rng.randint(0, far)}, "nlp": {"home": home - share}, ONE_REGION: {}}
    order = rng.choice((1, -1))
    pools = [
        {"name": "home", "capacity": home, "instance_type": KINDS[0]},
        {"name": "ohio", "capacity": far, "instance_type": KINDS[0], **there, **kept},
    ]
    return {
        "pools": pools[::order],
        "projects": [
            {
                "name": name,
                "quota": quota,
                "over_quota": rng.choice((1, 3)),
                **({"bucket_by_region": BUCKETS} if name in REPLICATED else {}),
                "checkpoints_replicated": REPLICATED.get(name, False),
            }
            for name, quota in quotas.items()
        ],
        "settings": {"patience": rng.choice((60, 1800)), "window": rng.choice((100, 100, 2))},
    }


def a_shared_policy(rng: random.Random) -> dict[str, Any]:
    """One pool of one to three instances, and two projects."""
    instances = rng.randint(1, 3)
    share = rng.randint(0, instances)
    return {
        "pools": [
            {
                "name": "p5",
                "capacity": instances,
                "instance_type": KINDS[0],
                "shared": True,
                "keep_warm": rng.choice((0, 60, 600)),
            }
        ],
        "projects": [
            {"name": "vision", "quota": {"p5": share}},
            {"name": "nlp", "quota": {"p5": instances - share}, "over_quota": rng.choice((1, 3))},
        ],
        "settings": {"patience": rng.choice((60, 1800)), "window": rng.choice((100, 100, 2))},
    }


def with_clock_difference(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in most walks with two sites with a clock of the other site that differs."""
    return replace(setup, clock_ahead=rng.choice(CLOCKS_AHEAD)) if setup.other_sites else setup


def with_quota_lag(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in half of the walks with quota that comes back late."""
    return replace(setup, quota_lag=rng.choice(QUOTA_LAGS))


def with_deletions(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in two fifths of the walks with training jobs that are deleted.

    An adversary can take the names that become free, so half of these walks have one in any case.
    """
    deletions = rng.choice(DELETIONS)
    adversary, seconds = max(setup.adversary, rng.choice((0.0, 8.0))), rng.choice(DELETION_SECONDS)
    troubles = setup.troubles
    if setup.faults and rng.random() < 0.5:  # calls that may launch again what was deleted
        troubles = {**troubles, "create": (Fault.LATE, Fault.UNANSWERED)}
    changed = replace(setup, deletions=deletions, deletion_seconds=seconds, adversary=adversary, troubles=troubles)
    return changed if deletions else setup


def with_requeues(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in a sixth of the walks with users who requeue jobs and hold running ones."""
    return replace(setup, requeues=rng.choice(REQUEUES))


def with_deadlines(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in a sixth of the walks with jobs that have deadlines, and limits on preemptions."""
    deadlines = rng.choice(DEADLINES)
    policy = with_limited_preemption(setup.policy) if setup.policy and deadlines else setup.policy
    return replace(setup, deadlines=deadlines, policy=policy)


def with_limited_preemption(policy: dict[str, Any]) -> dict[str, Any]:
    """Return the policy with a limit on the preemptions of each job."""
    return {**policy, "settings": {**policy["settings"], "max_preemptions": MOST_PREEMPTIONS}}


def with_drains(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in a sixth of the walks with an admin who drains pools."""
    return replace(setup, drains=rng.choice(DRAINS))


def with_hangs(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in a sixth of the walks with jobs that hang."""
    return replace(setup, hangs=rng.choice(HANGS))


def with_stages(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in a sixth of the walks with training jobs that report their progress."""
    return replace(setup, stages=rng.choice(STAGES))


def with_failures(setup: Setup, rng: random.Random) -> Setup:
    """Return the setup, in a sixth of the walks with attempts that fail in many ways, and rules about failures."""
    failures, rules, of_project = rng.choice(FAILURES), rng.choice(RULES), rng.choice(RULES)
    changed = replace(setup, failures=failures, refuses_checks=failures > 0 and rng.random() < 0.3)
    if not failures or setup.policy is None:
        return changed
    changed = replace(changed, failure_rules=rules, project_failure_rules=of_project)
    return replace(changed, policy=with_failure_rules(setup.policy, changed))


def with_failure_rules(policy: dict[str, Any], setup: Setup) -> dict[str, Any]:
    """Return the policy with the rules of the setup about failures."""
    first, *others = policy["projects"]
    projects = [{**first, "failure_rules": list(setup.project_failure_rules)}, *others]
    return {**policy, "failure_rules": list(setup.failure_rules), "projects": projects}


def some_key_limits(rng: random.Random, share: float = THROTTLED_SHARE) -> KeyLimits | None:
    """Draw limits of partition keys, so low that the few calls of a walk reach them.

    :param share: of the walks that have limits; None in the others.
    """
    reads, writes = rng.choice((1, 4, 16)), rng.choice((0.5, 2, 8))
    return KeyLimits(reads, writes) if rng.random() < share else None


def with_quota_for_everybody(policy: dict[str, Any]) -> dict[str, Any]:
    """Return the policy with quotas in which interactive jobs can end, whatever they ask for."""
    if "interactive" not in policy:
        return policy
    quota = {pool["name"]: pool["capacity"] for pool in policy["pools"]}
    projects = [{**project, "quota": quota} for project in policy["projects"]]
    return {**policy, "projects": projects, "settings": {**policy["settings"], "allow_oversubscription": True}}


def some_troubles(rng: random.Random) -> dict[str, tuple[Fault, ...]]:
    """Half of all faults, and often of writes only.

    Where everything goes wrong, few get far: bugs that take two faults of a kind show where others stay away.
    """
    half = {fault for fault in Fault if fault is not Fault.UNREACHABLE and rng.random() < 0.5}
    kinds = rng.choice((tuple(FAULTS), WRITES, WRITES))
    return {kind: tuple(fault for fault in FAULTS[kind] if fault in half) if kind in kinds else () for kind in FAULTS}


def a_policy(rng: random.Random) -> dict[str, Any]:
    """Two pools and two projects; every job of up to two instances fits somewhere."""
    large, small = rng.randint(2, 4), rng.randint(2, 3)
    share = rng.randint(0, large)
    kept: dict[str, Any] = {"keep_warm": rng.choice(KEPT)} if rng.random() < 0.5 else {}
    return {
        "pools": [
            {"name": "p5", "capacity": large, "instance_type": KINDS[0], **kept},
            {"name": "g5", "capacity": small, "instance_type": KINDS[1]},
        ],
        "projects": [
            {"name": "vision", "quota": {"p5": share, "g5": rng.randint(0, small)}},
            {"name": "nlp", "quota": {"p5": large - share}, "over_quota": rng.choice((1, 3))},
        ],
        "settings": {"patience": rng.choice((60, 1800)), "window": WINDOWS[(large + small + share) % 4]},
    }
