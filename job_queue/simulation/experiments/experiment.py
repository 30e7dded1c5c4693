"""Simulate one set of jobs under any policy, and compute the finish-time fairness (rho) of the policy's projects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from job_queue.scheduler import GPUS, UNLIMITED, Policy, Project
from job_queue.simulation.fleet.attempts import JobRun
from job_queue.simulation.metrics import finish_time_fairness
from job_queue.simulation.options import Runtimes
from job_queue.simulation.report import PolicyOutcome
from job_queue.simulation.simulator import Simulator
from job_queue.simulation.trace import TraceConversion, TraceJob
from job_queue.simulation.workload import Overheads, SimulatedJob

OnMoment = Callable[[str, int, int], object]
"""Function that is called at the beginning of each simulation and after each moment. Arguments: a title, the number of
finished jobs and the number of all jobs. An exception that the function raises ends the simulation."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """The conditions under which jobs are simulated, apart from the policy."""

    reading: TraceConversion
    overheads: Overheads = Overheads()
    runtimes: Runtimes = "predicted"
    max_factor: float = 1.5

    def outcome(self, label: str, policy: Policy, trace: Sequence[TraceJob], watch: OnMoment) -> PolicyOutcome:
        """Simulate the jobs of a trace under a policy.

        :raises TraceError: the policy lacks a project of the trace.
        """
        jobs = [self._with_known_runtime(job) for job in self.reading.jobs(trace, policy)]
        runs = self._run(policy, jobs, partial(watch, "Simulation"))
        return PolicyOutcome(label, policy, runs, self._fairness(policy, runs, watch), self._gpus(policy))

    def _run(self, policy: Policy, jobs: Sequence[SimulatedJob], watch: Callable[[int, int], object]) -> list[JobRun]:
        watch(0, len(jobs))
        predicted = self.runtimes == "predicted"
        return Simulator(policy, self.overheads, lambda ended: watch(ended, len(jobs)), predicted=predicted).run(jobs)

    def _gpus(self, policy: Policy) -> int | None:
        """Return the number of GPUs of the fleet; None: the fleet has no limit."""
        if any(pool.capacity >= UNLIMITED for pool in policy.pools):
            return None
        otherwise = self.reading.gpus_per_instance
        each = ((pool.capacity, pool.gpus or GPUS.get(pool.instance_type or "", otherwise)) for pool in policy.pools)
        return sum(capacity * gpus for capacity, gpus in each)

    def _fairness(self, policy: Policy, runs: Sequence[JobRun], watch: OnMoment) -> dict[str, float]:
        """Return rho (see `metrics`) of each project with jobs and a quota; empty if there is only one project."""
        found: dict[str, float] = {}
        for project in policy.projects if len(policy.projects) > 1 else ():
            own = [run for run in runs if run.job.project == project.name]
            if own and any(project.quota.values()):
                watch_it = partial(watch, f"Project {project.name} alone")
                alone = self._run(_without_other_projects(policy, project), [run.job for run in own], watch_it)
                rho = finish_time_fairness(own, alone)
                if rho is not None:
                    found[project.name] = rho
        return found

    def _with_known_runtime(self, job: SimulatedJob) -> SimulatedJob:
        """Return the job with the maximum runtime that the planner knows.

        With predicted runtimes, this is the MaxRuntime of the trace, which also bounds the predictions.
        """
        starting = self.overheads.provisioning
        known = job.max_runtime if self.runtimes == "predicted" else None
        if self.runtimes == "max":
            known = job.max_runtime or starting + job.work * self.max_factor
        elif self.runtimes == "oracle":
            known = starting + job.work
        return replace(job, max_runtime=known)


def _without_other_projects(policy: Policy, project: Project) -> Policy:
    """Return a policy with only this project, in pools that are as large as the project's quota."""
    pools = tuple(replace(pool, capacity=project.quota.get(pool.name, 0)) for pool in policy.pools)
    alone = replace(project, department=None, limit={})
    return replace(policy, pools=pools, departments=(), projects=(alone,))
