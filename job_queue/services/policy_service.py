"""Shows and applies the policy. Who applies one names the version that was read, so that no change is lost."""

import json
from collections.abc import Callable, Iterator

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.telemetry import log
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import Forbidden, InUse, Refused, StalePolicy, TooLarge, ValidationIssue
from job_queue.domain.job import Job
from job_queue.domain.policy import AppliedPolicy
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import Policy

MAX_POLICY_BYTES = 200 * 1024
NAMES_SHOWN = 5
_DROPPED = (
    "Let these jobs end or cancel them first; or apply it with force (smq policy apply --force): they then wait, and "
    "say why."
)


class PolicyService:
    """Shows and applies the policy."""

    def __init__(
        self,
        repository: JobRepository,
        policies: Policies,
        settings: DeploymentSettings,
        read_cluster: Callable[[], ClusterState],
        clock: Callable[[], float],
    ) -> None:
        self._repository = repository
        self._policies = policies
        self._settings = settings
        self._read_cluster = read_cluster
        self._clock = clock

    def current(self) -> AppliedPolicy:
        """The policy that holds now."""
        return self._policies.of(self._repository.policy())

    def has_right(self, caller: str) -> bool:
        """Whether the caller may apply a policy."""
        return not self._settings.admin_arns or self._settings.is_admin(caller)

    def check_right(self, caller: str) -> None:
        """Where the queue has administrators, only they apply policies.

        :raises Forbidden: the caller is none.
        """
        if not self.has_right(caller):
            raise Forbidden("Only an admin (the stack's parameter AdminArns) may apply a policy.")

    def apply(
        self, document: object, version: int, caller: str, *, force: bool = False
    ) -> tuple[AppliedPolicy, list[str]]:
        """Apply a policy; gives it as it is kept, and warnings. It takes effect in the next cycle.

        :param version: of the policy that was read, and is to be replaced.
        :param force: apply it although live jobs need what it drops.
        :raises InvalidRequest, Forbidden, TooLarge, StalePolicy, InUse: the old policy stays, whole.
        """
        self.check_right(caller)
        text = json.dumps(document, separators=(",", ":"))
        if len(text) > MAX_POLICY_BYTES:
            raise TooLarge(f"The policy takes {len(text):,} bytes; the queue keeps at most {MAX_POLICY_BYTES:,}.")
        policy = parse_policy(document)
        if self.current().version != version:
            raise _stale(version)
        warnings = list(_drops(self._read_cluster(), policy))
        if warnings and not force:
            raise InUse.of([ValidationIssue("policy", warning, _DROPPED) for warning in warnings])
        try:
            self._repository.apply_policy(text, version, caller, self._clock())
        except Refused:
            raise _stale(version) from None
        log.info("policy applied", version=version + 1, by=caller)
        return self.current(), warnings


def _stale(version: int) -> StalePolicy:
    return StalePolicy(
        f"Version {version} is not the present policy: it was changed meanwhile.",
        field="version",
        remedy="Compare yours with the one that is applied now (smq policy diff), and apply it again.",
    )


def _drops(cluster: ClusterState, policy: Policy) -> Iterator[str]:
    """What live jobs need and the policy no longer has."""
    jobs: list[Job] = [*cluster.active.values(), *cluster.waiting.values()]
    projects, pools = {project.name for project in policy.projects}, {pool.name for pool in policy.pools}
    for name in sorted({job.project for job in jobs} - projects):
        yield f"The project {name} still has {_names_of([job for job in jobs if job.project == name])}."
    used = {pool for job in jobs for pool in (*job.slots, *job.pools)}
    for name in sorted(used - pools):
        needing = [job for job in jobs if name in job.slots or name in job.pools]
        yield f"The pool {name} is still used or named by {_names_of(needing)}."


def _names_of(jobs: list[Job]) -> str:
    names = sorted(job.name for job in jobs)
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else shown
