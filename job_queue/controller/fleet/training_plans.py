"""Describe the policy's training plans in SageMaker, and announce to jobs that their instances will be taken back."""

from collections.abc import Container
from functools import partial

from job_queue.adapters.telemetry import log
from job_queue.controller.part import ControllerPart
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.sites import site_of_pool
from job_queue.domain.fleet.training_plans import (
    KnownPlan,
    closing,
    plan_arns,
    plans_to_describe,
    was_extended,
)
from job_queue.domain.state_machine import JobTransition, announce_cut_off, announce_extension
from job_queue.scheduler import JobState


class TrainingPlans(ControllerPart):
    """The known training plans, kept up to date."""

    def refresh(self, metadata: Metadata) -> None:
        """Describe each training plan of the policy that was not described in the last `DESCRIBE_SECONDS`."""
        policy = self._policies.of(metadata.policy).policy
        for arn in plans_to_describe(metadata.training_plans, policy, self._clock()):
            self._describe(arn, metadata.training_plans.get(arn))

    def describe_new(self, cluster: ClusterState) -> bool:
        """Describe the training plans that were never described. Return whether there were any."""
        new = [arn for arn in plan_arns(cluster.applied.policy) if arn not in cluster.metadata.training_plans]
        for arn in new:
            self._describe(arn, None)
        return bool(new)

    def _describe(self, arn: str, known: KnownPlan | None) -> None:
        parts = known.parts if known else None
        try:
            policy = self._policies.of(self._repository.policy()).policy
            site = next((site_of_pool(pool) for pool in policy.pools if pool.training_plan == arn), None)
            parts = self._training.at(site).plan_parts(arn, partial(self._count_instances_in_use, arn))
        except Unavailable as error:  # keep the parts from the last successful call
            log.warning("training plan not described", plan=arn, why=error.message)
        self._repository.note_training_plan(KnownPlan(arn, int(self._clock()), parts))

    def _count_instances_in_use(self, arn: str) -> int:
        """Count a training plan's instances in use: by accepted attempts, and by external jobs other than orphans."""
        policy = self._policies.of(self._repository.policy()).policy
        pools = {pool.name for pool in policy.pools if pool.training_plan == arn}
        active = [job for job in self._repository.active() if job.state is not JobState.STARTING]
        own = sum(count for job in active for pool, count in job.slots.items() if pool in pools)
        external = [job for job in self._repository.external() if job.plan == arn and not job.orphan]
        return own + sum(sum(job.instance_counts.values()) for job in external)


def cut_off_announcements(cluster: ClusterState, leaving: Container[str], now: float) -> list[JobTransition]:
    """Return an announcement for each running job that will soon lose its instances, or whose plan was extended.

    :param leaving: jobs that already have a transition in this cycle.
    """
    announcements = []
    for job in cluster.active.values():
        if job.state is JobState.RUNNING and job.name not in leaving:
            found = closing(job, cluster.metadata.training_plans, cluster.applied.policy, now)
            if found:
                at, plan = found
                announcements.append(announce_cut_off(job, at, plan, now))
            elif was_extended(job, cluster.metadata.training_plans, cluster.applied.policy, now):
                announcements.append(announce_extension(job, now))
    return announcements
