"""Shows and applies the policy. Who applies one names the version that was read, so that no change is lost."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Policies
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.telemetry import log
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import Forbidden, InUse, InvalidRequest, Refused, StalePolicy, TooLarge
from job_queue.domain.job import Job
from job_queue.domain.policy import AppliedPolicy
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import Policy
from job_queue.validation.issue import member
from job_queue.validation.json_text import json_object

MAX_POLICY_BYTES = 200 * 1024
MOST_VERSIONS = 10**9  # far more than anybody applies
NAMES_SHOWN = 5
_FIELDS = ("policy", "version", "force")


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

    def apply(self, body: str, caller: str) -> tuple[AppliedPolicy, list[str]]:
        """Apply the policy in a body; gives it as it is kept, and warnings. It takes effect in the next cycle.

        :param body: JSON: the document as `policy`, the `version` that was read, and whether to `force`.
        :raises InvalidRequest, Forbidden, TooLarge, StalePolicy, InUse: the old policy stays, whole.
        """
        if self._settings.admin_arns and not self._settings.is_admin(caller):
            raise Forbidden("Only an admin (the stack's parameter AdminArns) may apply a policy.")
        document, version, force = _parse(body)
        text = json.dumps(document, separators=(",", ":"))
        if len(text) > MAX_POLICY_BYTES:
            raise TooLarge(f"The policy takes {len(text):,} bytes; the queue keeps at most {MAX_POLICY_BYTES:,}.")
        policy = parse_policy(document)
        if self.current().version != version:
            raise StalePolicy(_stale(version))
        warnings = list(_drops(self._read_cluster(), policy))
        if warnings and not force:
            raise InUse(f"{' '.join(warnings)} To apply it all the same, use force: such jobs then wait.")
        try:
            self._repository.apply_policy(text, version, caller, self._clock())
        except Refused:
            raise StalePolicy(_stale(version)) from None
        log.info("policy applied", version=version + 1, by=caller)
        return self.current(), warnings


def _parse(body: str) -> tuple[Any, int, bool]:
    content = json_object(body, "the policy, and the version that was read")
    if "policy" not in content:
        raise InvalidRequest("policy is missing: the document that is to be applied.", field="policy")
    for name in content:
        if name not in _FIELDS:
            raise InvalidRequest(
                f"{member('', name)} is unknown here; there are {', '.join(_FIELDS)}.", field=member("", name)
            )
    version, force = content.get("version"), content.get("force", False)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= MOST_VERSIONS:
        raise InvalidRequest(
            "version must be the number of the policy that was read; 0: there is none.", field="version"
        )
    if not isinstance(force, bool):
        raise InvalidRequest("force must be true or false.", field="force")
    return content["policy"], version, force


def _stale(version: int) -> str:
    return (
        f"Version {version} is not the present policy: it was changed meanwhile. "
        "Read it again, and apply your change to that."
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
