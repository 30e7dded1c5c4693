"""Read, validate and apply versions of the policy.

A caller that applies a policy names the version that the new policy replaces. If another version is in force, the new
policy is refused, so that no change of another caller is lost.
"""

import json
from collections.abc import Callable

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.domain_events import PolicyApplied
from job_queue.domain.errors import InUse, NotFound, Refused, StalePolicy, TooLarge
from job_queue.domain.fleet.sites import HomeSite
from job_queue.domain.policy import AppliedPolicy, PolicyVersion
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import Policy
from job_queue.services.policy_conflicts import conflicts

MAX_POLICY_BYTES = 200 * 1024


class PolicyService:
    """The service that reads and applies versions of the policy.

    :param read_cluster: returns the cluster state.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        repository: JobRepository,
        policies: Policies,
        read_cluster: Callable[[], ClusterState],
        clock: Callable[[], float],
    ) -> None:
        self._repository = repository
        self._policies = policies
        self._read_cluster = read_cluster
        self._clock = clock

    def current(self) -> AppliedPolicy:
        """Return the policy in force."""
        return self._policies.of(self._repository.policy())

    def history(self) -> list[PolicyVersion]:
        """Return the stored versions, the latest first."""
        return self._repository.policy_history.versions()

    def of_version(self, version: int) -> AppliedPolicy:
        """Return a stored version of the policy. Version 0 is the default policy.

        :raises NotFound: the version is no longer stored, or never existed.
        """
        current = self._repository.policy()
        if current is not None and current.version == version:
            return self._policies.of(current)
        if version == 0:
            return self._policies.of(None)
        past = self._repository.policy_history.policy(version)
        if past is None:
            raise NotFound(
                f"Version {version} of the policy is not stored.",
                field="version",
                remedy="List the stored versions: smq policy history.",
            )
        return self._policies.read(past)

    def warnings(self, applied: AppliedPolicy) -> list[str]:
        """Return a warning if the pools of a policy have more instances than the queue may use."""
        if not applied.excess:
            return []
        return [
            f"The pools have {applied.excess} instances more than the {applied.ceiling} of MaxCapacity: the "
            "first pools get their instances, the others the rest. Lower a capacity, or raise the stack's parameter "
            "MaxCapacity."
        ]

    def roll_back(self, to: int, version: int, caller: str, *, force: bool = False) -> tuple[AppliedPolicy, list[str]]:
        """Apply an earlier version of the policy again, as a new version, with the same checks as for any other.

        :param to: the version to apply again.
        :param version: the version to replace, as the caller has read it.
        :raises NotFound, InvalidRequest, TooLarge, StalePolicy, InUse: the present policy stays unchanged.
        """
        return self._apply(self.of_version(to).document, version, caller, force=force, restored=to)

    def apply(
        self, document: object, version: int, caller: str, *, force: bool = False
    ) -> tuple[AppliedPolicy, list[str]]:
        """Apply a policy, which takes effect in the next cycle. Return the stored policy and warnings.

        :param version: the version to replace, as the caller has read it.
        :param force: apply the policy even if it has `conflicts` with live jobs.
        :raises InvalidRequest, TooLarge, StalePolicy, InUse: the present policy stays unchanged.
        """
        return self._apply(document, version, caller, force=force)

    def _apply(
        self, document: object, version: int, caller: str, *, force: bool, restored: int | None = None
    ) -> tuple[AppliedPolicy, list[str]]:
        known = self._policies
        text, policy = read_policy(document, known.max_capacity, may_share=known.may_share, home=known.home)
        if self.current().version != version:
            raise _stale(version)
        found = list(conflicts(self._read_cluster(), policy))
        if found and not force:
            raise InUse.of(found)
        try:
            applied = self._repository.apply_policy(text, version, caller, self._clock(), restored)
        except Refused:
            raise _stale(version) from None
        self._repository.notify(PolicyApplied(applied, restored))
        return self.current(), [conflict.message for conflict in found]


def read_policy(
    document: object, max_capacity: int | None, *, may_share: bool = True, home: HomeSite | None = None
) -> tuple[str, Policy]:
    """Validate a policy. Return its text, as it is stored, and the parsed policy.

    :param max_capacity: maximum instances of all pools together; None: no maximum.
    :param may_share: whether jobs may share instances of the policy's pools.
    :param home: the region and account of the stack; None: not known.
    :raises InvalidRequest, TooLarge: the policy is invalid.
    """
    text = json.dumps(document, separators=(",", ":"))
    if len(text) > MAX_POLICY_BYTES:
        raise TooLarge(f"The policy takes {len(text):,} bytes; the queue stores at most {MAX_POLICY_BYTES:,}.")
    return text, parse_policy(document, max_capacity, may_share=may_share, home=home)


def _stale(version: int) -> StalePolicy:
    return StalePolicy(
        f"Version {version} is not the policy in force: the policy was changed meanwhile.",
        field="version",
        remedy="Compare your policy with the policy in force (smq policy diff), and apply it again.",
    )
