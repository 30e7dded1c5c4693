"""Use warm pools for launches, and release the warm pools that block a launch, as the placement of a plan requires."""

from collections.abc import Iterable
from dataclasses import replace

from job_queue.adapters.telemetry import log
from job_queue.controller.part import ControllerPart
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.warm_pools import RELEASE_AGAIN_SECONDS, Placement
from job_queue.domain.job import ExternalTrainingJob, Job
from job_queue.domain.state_machine import JobTransition


def with_keep_warm(starts: Iterable[JobTransition], placement: Placement) -> list[JobTransition]:
    """Return the starts, each with the seconds for which its instances are kept warm after its end.

    The instances of a job whose launch was refused are not kept warm, because the account may have no quota for warm
    pools.
    """
    return [
        replace(
            start, new=replace(start.new, keep_warm=None if start.old.refusals else placement.keep.get(start.new.name))
        )
        for start in starts
    ]


class WarmPools(ControllerPart):
    """The use and release of warm pools.

    A warm pool is recorded without the lease, because the record takes no additional slots.
    """

    def stop_counting(self, placement: Placement, launched: Iterable[Job]) -> None:
        """Stop counting the warm pools on which jobs were launched.

        Until SageMaker accepts a launch, both the job and its warm pool count, because the launch may be refused or the
        job cancelled. If SageMaker launches the job on other instances, the next comparison finds the warm pool again.
        """
        for job in launched:
            if pool := placement.reused.get(job.name):
                log.info("warm pool used", job=job.name, attempt=pool.name)
                try:
                    self._repository.drop_external(pool.name)
                except Unavailable as error:  # the next comparison finds that the warm pool is gone
                    log.warning("warm pool still counted", attempt=pool.name, why=error.message)

    def release(self, in_the_way: Iterable[ExternalTrainingJob]) -> bool:
        """Release the warm pools that block a launch. Return whether planning again may do more now."""
        once = {pool.name: pool for pool in in_the_way}.values()
        gone = [self._release(pool) for pool in once]  # a list: `any` would stop a generator at the first success
        return any(gone)

    def _release(self, pool: ExternalTrainingJob) -> bool:
        """Release a warm pool. Return whether plans may change: the pool is gone, or SageMaker denies the release."""
        warm, now = pool.warm, int(self._clock())
        if warm is None:
            return False
        again = warm.releasing is None or warm.releasing + RELEASE_AGAIN_SECONDS <= now
        try:
            training = self._training.at(pool.site)
            if again and not training.release(pool.training_job_name):
                log.warning("release of a warm pool denied", attempt=pool.name)
                self._repository.add_external(replace(pool, warm=replace(warm, fixed=True)))
                return True
            found = training.describe(pool.training_job_name)
        except Unavailable as error:
            log.warning("warm pool not released", attempt=pool.name, why=error.message)
            return False
        if found is None or found.warm is None:
            log.info("warm pool released", attempt=pool.name)
            self._repository.drop_external(pool.name)
            return True
        if again:
            self._repository.add_external(replace(pool, warm=replace(warm, releasing=now)))
        return False
