"""Showing and applying the policy, with versions: nobody overwrites what he has not read, and it is all or nothing."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from job_queue.bodies import json_object
from job_queue.errors import Forbidden, InUse, InvalidRequest, Refused, StalePolicy, TooLarge
from job_queue.policy import AppliedPolicy, Policies
from job_queue.policy_rules import parse_policy
from job_queue.records import Job
from job_queue.scheduler import Policy
from job_queue.settings import Settings
from job_queue.store import Store
from job_queue.telemetry import log
from job_queue.validation.problem import member
from job_queue.world import World

MAX_POLICY_BYTES = 200 * 1024
MOST_VERSIONS = 10**9  # far more than anybody applies
NAMES_TOLD = 5
_FIELDS = ("policy", "version", "force")


class PolicyDesk:
    """Where the policy is kept and changed."""

    def __init__(
        self,
        store: Store,
        policies: Policies,
        settings: Settings,
        look: Callable[[], World],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._policies = policies
        self._settings = settings
        self._look = look
        self._clock = clock

    def current(self) -> AppliedPolicy:
        """The policy that holds now."""
        return self._policies.of(self._store.policy())

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
        warnings = list(_drops(self._look(), policy))
        if warnings and not force:
            raise InUse(f"{' '.join(warnings)} To apply it all the same, use force: such jobs then wait.")
        try:
            self._store.apply_policy(text, version, caller, self._clock())
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


def _drops(world: World, policy: Policy) -> Iterator[str]:
    """What live jobs need and the policy no longer has."""
    jobs: list[Job] = [*world.active.values(), *world.waiting.values()]
    projects, pools = {project.name for project in policy.projects}, {pool.name for pool in policy.pools}
    for name in sorted({job.project for job in jobs} - projects):
        yield f"The project {name} still has {_named([job for job in jobs if job.project == name])}."
    used = {pool for job in jobs for pool in (*job.slots, *job.pools)}
    for name in sorted(used - pools):
        needing = [job for job in jobs if name in job.slots or name in job.pools]
        yield f"The pool {name} is still used or named by {_named(needing)}."


def _named(jobs: list[Job]) -> str:
    names = sorted(job.name for job in jobs)
    told = ", ".join(names[:NAMES_TOLD])
    return f"{told} and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else told
