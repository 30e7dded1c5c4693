"""Read a trace (jobs of a real cluster as CSV), and derive simulated jobs, capacities and quotas of groups from it."""

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from job_queue.prediction.runtimes import JobTraits
from job_queue.scheduler import WHOLE, Policy, Slots
from job_queue.simulation.workload import SimulatedJob

REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
# optional: group, user, priority, max_runtime_s, interactive, instances, pool
ATTEMPT = "attempt"  # a trace with this column has a row for each attempt of a job
CARRIES = "carries"  # column of a trace of the queue's own history: the GPUs of a carrier; empty for other jobs
LARGEST = 1e12  # the largest number that a trace may contain
DRAWN_PRIORITIES = (10.0, 60.0, 30.0)  # percent of the jobs by priority, highest first, in traces without priorities
NO_PROJECT = "(none)"  # stands for jobs without a project in options and messages


class TraceError(ValueError):
    """An error because a file is not a valid trace, or a trace does not fit the policy or the options."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A row of a trace. Times are seconds on any clock: since the beginning of the trace, or since the epoch."""

    name: str
    submitted: float
    duration: float
    gpus: float  # number of GPUs, which may be a fraction
    group: str = ""
    user: str = ""
    priority: int | None = None
    max_runtime: float | None = None
    interactive: bool = False
    instances: int = 0  # whole instances that the job had; 0: unknown, or the job shared an instance
    pool: str = ""  # the pool in which the job ran; empty: unknown


@dataclass(frozen=True, slots=True)
class Regrouping:
    """Changes of the projects of a trace, for projects that a policy does not have."""

    renamed: tuple[tuple[str, str], ...] = ()  # project of the trace -> project of the policy
    excluded: tuple[str, ...] = ()  # projects whose jobs are left out

    def apply(self, trace: Sequence[TraceJob]) -> list[TraceJob]:
        """Return the remaining jobs of a trace, in their new projects.

        :raises TraceError: a renamed or excluded project is not in the trace, or no job remains.
        """
        groups = {job.group or NO_PROJECT for job in trace}
        renamed = dict(self.renamed)
        for name in (*renamed, *self.excluded):
            if name not in groups:
                raise TraceError(f"the trace has no project {name!r}; it has {', '.join(sorted(groups))}")
        kept = [
            replace(job, group=renamed.get(job.group or NO_PROJECT, job.group))
            for job in trace
            if (job.group or NO_PROJECT) not in self.excluded
        ]
        if not kept:
            raise TraceError("all jobs of the trace are excluded")
        return kept


def read_trace(path: Path) -> list[TraceJob]:
    """Return the jobs of a CSV file, which may be compressed (.gz), in the order of their submissions.

    :raises OSError: the file cannot be read.
    :raises TraceError: the file is not a valid trace.
    """
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error):
        raise TraceError(f"{path} is damaged and cannot be decompressed: compress or copy it again") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path} is not UTF-8 text") from None
    return parse_trace(text, str(path))


def parse_trace(text: str, path: str) -> list[TraceJob]:
    """Parse a trace in CSV, and return its jobs in the order of their submissions.

    The columns job_id, submit_s, duration_s and gpus are required; group, user, priority, max_runtime_s, interactive,
    instances and pool are optional. A trace with a column attempt has a row for each attempt of a job. The command
    `smq history --csv` writes such traces. Rows with a value in the column carries are left out. Other columns are
    ignored.

    :param path: the name of the trace in messages.
    :raises TraceError: the text is not a valid trace.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = [column for column in REQUIRED if column not in (rows.fieldnames or ())]
        if missing:
            has = ", ".join(rows.fieldnames or ()) or "nothing"
            raise TraceError(f"{path} has no column {missing[0]} in its first line, but {has}")
        # Carriers are not submitted by users, so only their members are jobs of the trace.
        jobs = [_job(row, f"{path}, line {rows.line_num}") for row in rows if not row.get(CARRIES)]
    except csv.Error as error:
        raise TraceError(f"{path}, line {rows.reader.line_num}: {error}") from None
    if not jobs:
        raise TraceError(f"{path} has no jobs")
    if ATTEMPT in (rows.fieldnames or ()):
        jobs = _jobs_of_attempts(jobs)
    names = Counter(job.name for job in jobs)
    name, times = names.most_common(1)[0]
    if times > 1:
        raise TraceError(f"{path} has {times} jobs with the job_id {name!r}")
    return sorted(jobs, key=lambda job: job.submitted)


def _jobs_of_attempts(attempts: Iterable[TraceJob]) -> list[TraceJob]:
    """Combine the attempts of each submission into one job, whose duration is the sum of theirs.

    If a name was submitted at several times, each submission is a job, and the later jobs get a number in their names.
    """
    jobs: dict[tuple[str, float], TraceJob] = {}
    for attempt in attempts:
        before = jobs.get((attempt.name, attempt.submitted))
        done = before.duration if before else 0
        jobs[attempt.name, attempt.submitted] = replace(attempt, duration=done + attempt.duration)
    seen = Counter[str]()
    named = []
    for job in jobs.values():
        seen[job.name] += 1
        named.append(replace(job, name=f"{job.name} ({seen[job.name]})") if seen[job.name] > 1 else job)
    return named


def _job(row: Mapping[str, str | None], where: str) -> TraceJob:
    name = (row["job_id"] or "").strip()
    if not name:
        raise TraceError(f"{where}: job_id is empty")
    priority = _number(row, "priority", where, least=-LARGEST) if row.get("priority") else None
    longest = _number(row, "max_runtime_s", where) if row.get("max_runtime_s") else None
    return TraceJob(
        name=name,
        submitted=_number(row, "submit_s", where),
        duration=_number(row, "duration_s", where),
        gpus=_number(row, "gpus", where),
        group=row.get("group") or "",
        user=row.get("user") or "",
        priority=None if priority is None else int(priority),
        max_runtime=longest,
        interactive=_boolean(row, "interactive", where),
        instances=int(_number(row, "instances", where)) if row.get("instances") else 0,
        pool=row.get("pool") or "",
    )


def _boolean(row: Mapping[str, str | None], column: str, where: str) -> bool:
    word = (row.get(column) or "false").strip().lower()
    if word not in ("true", "false", "1", "0"):
        raise TraceError(f"{where}: {column} must be true or false, not {word!r}")
    return word in ("true", "1")


def _number(row: Mapping[str, str | None], column: str, where: str, least: float = 0) -> float:
    text = (row[column] or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= LARGEST:
        raise TraceError(f"{where}: {column} must be a number{'' if least else ' from 0'}, not {text!r}")
    return number


# --- conversion to simulated jobs --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TraceConversion:
    """The rules by which the rows of a trace become jobs."""

    gpus_per_instance: int = 8
    priorities: tuple[float, ...] = ()  # weights of the priorities, the highest first; empty: the trace's priorities
    longest: float | None = None  # seconds at which longer durations are cut; None: no limit
    seed: int = 0  # seed of the drawn priorities

    def jobs(self, trace: Iterable[TraceJob], policy: Policy) -> list[SimulatedJob]:
        """Return the jobs, each in the project with the name of its group, or else in the policy's only project.

        If the policy still has the pool of a row, the job can run in the project's pools of the same instance type.
        Other jobs can run in all pools of their project.

        :raises TraceError: a group has no project.
        """
        random = Random(self.seed)  # noqa: S311  (no secret: the same seed repeats a simulation)
        projects = {project.name: project for project in policy.projects}
        only = policy.projects[0].name if len(projects) == 1 else None
        trace = list(trace)
        missing = Counter(row.group for row in trace if row.group not in projects) if only is None else None
        if missing:
            raise TraceError(_no_project(missing, projects))
        pools = tuple(pool.name for pool in policy.pools)
        types = {pool.name: pool.instance_type for pool in policy.pools}
        shared = {pool.name: pool.gpus for pool in policy.pools if pool.gpus is not None}
        demands: dict[tuple[int, tuple[str, ...]], tuple[Slots, ...]] = {}  # jobs with the same demand share one object
        jobs = []
        for row in trace:
            name = row.group if row.group in projects or only is None else only
            usable_pools = projects[name].pools_for(interactive=row.interactive) or pools
            same_type = tuple(pool for pool in usable_pools if row.pool in types and types[pool] == types[row.pool])
            usable_pools = same_type or usable_pools
            largest_shared = 0 if row.interactive else max((shared.get(pool, 0) for pool in usable_pools), default=0)
            gpus = self._gpus(row, largest_shared)
            size = self.instances(row), usable_pools
            demand = demands.setdefault(size, tuple({pool: size[0]} for pool in size[1]))
            jobs.append(
                SimulatedJob(
                    name=row.name,
                    project=name,
                    priority=self._priority(row, random),
                    demand=demand,
                    submitted=row.submitted,
                    work=self.work(row),
                    owner=row.user,
                    preemptible=not row.interactive,
                    interactive=row.interactive,
                    max_runtime=row.max_runtime,
                    traits=traits_of(row, name),
                    gpus=gpus,
                    kind="" if gpus is None or projects[name].owners_share else row.user,
                    needed_gpus=row.gpus,
                    part=1 if gpus is None else gpus / WHOLE / self.gpus_per_instance,
                )
            )
        return jobs

    def instances(self, row: TraceJob) -> int:
        """Return the number of instances that a job needs."""
        return row.instances or max(1, math.ceil(row.gpus / self.gpus_per_instance))

    def _gpus(self, row: TraceJob, most: int) -> int | None:
        """Return the tenths of GPUs of a job that shares an instance, or None if the job has whole instances.

        :param most: GPUs of the largest shared instance that the job may use; 0: the job may not share an instance.
        """
        gpus = math.ceil(row.gpus)
        if row.instances:
            return None
        if not 0 < gpus < self.gpus_per_instance or gpus > most:
            return None
        return math.ceil(row.gpus * WHOLE) if row.gpus < 1 else gpus * WHOLE

    def work(self, row: TraceJob) -> float:
        """Return the seconds of training of a job."""
        return row.duration if self.longest is None else min(row.duration, self.longest)

    def _priority(self, row: TraceJob, draw: Random) -> int:
        if self.priorities:
            classes = range(len(self.priorities), 0, -1)
            return draw.choices(classes, self.priorities)[0]
        return row.priority or 0


def _no_project(missing: Counter[str], projects: Iterable[str]) -> str:
    """Return the error message for jobs whose project is not in the policy, with the options that avoid the error."""
    amounts = ((name, f"{count:,} jobs" if count > 1 else "1 job") for name, count in missing.most_common())
    counted = [f"{name or NO_PROJECT} ({amount})" for name, amount in amounts]
    first = next(iter(missing)) or NO_PROJECT
    return (
        f"the policy has no project {', '.join(counted)}: add --map-project '{first}=NAME' to count these jobs for "
        f"another project (the policy has {', '.join(projects)}), or --exclude-project '{first}' to leave them out"
    )


def traits_of(row: TraceJob, project: str) -> JobTraits:
    """Return the traits of a row from which its runtime can be predicted. Traces contain no images."""
    return JobTraits(project, row.user, row.name, size=f"{row.gpus:g} GPUs")


def capacity_for(jobs: Sequence[SimulatedJob], load: float) -> int:
    """Return the fleet size at which instances are busy for the part `load` of the time.

    The time is from the first submission to the last. The fleet has at least the instances of the largest job.
    """
    span = max(job.submitted for job in jobs) - min(job.submitted for job in jobs)
    largest = max(job.instances for job in jobs)
    return max(largest, math.ceil(sum(job.work * job.instances for job in jobs) / load / max(span, 1)))


def shares_of_work(groups: Iterator[tuple[str, float]], capacity: int) -> dict[str, int]:
    """Divide the instances among groups in proportion to their work, in whole numbers, by largest remainder."""
    work: Counter[str] = Counter()
    for group, amount in groups:
        work[group] += amount  # type: ignore[assignment]  # a Counter of seconds
    total = sum(work.values()) or 1
    exact = {group: capacity * amount / total for group, amount in work.items()}
    shares = {group: int(share) for group, share in exact.items()}
    most = sorted(exact, key=lambda group: (shares[group] - exact[group], group))
    for group in most[: capacity - sum(shares.values())]:
        shares[group] += 1
    return shares
