"""The failure of a job as facts and log lines, and sums of failures as rows."""

from __future__ import annotations

from collections.abc import Mapping

from api_contract.models import GpuReturn, JobDetail, JobFailure
from sagemaker_queue.jobs.formatting import clean, log_line, moment, visible
from sagemaker_queue.presentation.tables.explanations import Section
from sagemaker_queue.presentation.tables.usage_tables import TOTAL
from sagemaker_queue.workflows.usage.failure_sums import GPU, FailureSum

FAIL = "fail"
BUILT_IN = "built-in"  # the beginning of a rule's text if no rule matches, and so the class's built-in action applies
SHOWN_GPUS = 4  # UUIDs of GPUs that are shown; the JSON has all
LATEST_NAMES = 3  # training jobs that are shown for each GPU
NO_RULE_MATCHES = (
    "No rule of the job (its tag retry_on), of its project or of the policy (their failure_rules) matches this failure."
    " So the built-in action of the class applies. docs/reference/failures.md lists the classes and their actions."
)


def shown_failure(job: JobDetail) -> JobFailure | None:
    """Return the failure to show for a job; None for a completed job, even if an earlier attempt has failed."""
    return None if job.state == "completed" else job.failure


def failure_title(job: JobDetail, failure: JobFailure) -> str:
    """Return the title of the section about a failure."""
    return f"Failure of attempt {failure.attempt}" if job.finished else f"Last failure, of attempt {failure.attempt}"


def failure_facts(failure: JobFailure) -> dict[str, object]:
    """Return the facts about a failure by title; None or empty for facts that are not shown."""
    return {
        "Class": failure.failure_class,
        "Cause": failure.sentence,
        "What to do": failure.remedy,
        "GPUs": _gpus(failure),
        "Returned GPUs": "; ".join(map(_returned, failure.returned_gpus[:SHOWN_GPUS])),
        "First to fail": failure.rank,
        "Exit code": failure.exit_code,
        "Action": _action(failure),
        "Rule": failure.rule,
    }


def _gpus(failure: JobFailure) -> str:
    more = len(failure.gpu_uuids) - SHOWN_GPUS
    return ", ".join(failure.gpu_uuids[:SHOWN_GPUS]) + (f" and {more} more" if more > 0 else "")


def _returned(gpu: GpuReturn) -> str:
    times = f"{gpu.failures} other hardware failure{'s' if gpu.failures > 1 else ''} within a day"
    return f"{gpu.uuid}: {times}" + (f", the latest at {moment(gpu.latest)}" if gpu.latest else "")


def failure_lines(failure: JobFailure) -> list[str]:
    """Return the last log lines of the rank that failed first, without control sequences."""
    return [visible(log_line(line)) for line in failure.lines]


def check_sections(job: JobDetail, failure: JobFailure) -> list[Section]:
    """Return the rule that chose the action after a failure, and the rule that would choose it now."""
    cause = (str(clean(failure.sentence)),) if failure.sentence else ()
    sections = [
        Section(f"{job.job}, attempt {failure.attempt}: {failure.failure_class}", cause),
        Section("Action at that time", _choice(_action(failure), failure.rule)),
    ]
    if failure.action_now is None:
        return [*sections, Section("Action now", ("This queue does not say which rule would match now.",))]
    now = _choice(failure.action_now, failure.rule_now or "")
    sections.append(Section("Action by the rules in force now", now))
    if (failure.rule_now or "").startswith(BUILT_IN):
        sections.append(Section("Why the built-in action", (NO_RULE_MATCHES,)))
    return sections


def failure_rows(by: str, parts: Mapping[str, FailureSum], total: FailureSum) -> tuple[list[str], list[list[object]]]:
    """Return headers, a row for each part, and a row for the total.

    The last column has the most common class of each part. By GPU, it has the latest training jobs instead. By class,
    there is no such column.
    """
    rows: list[list[object]] = []
    last = {"class": [], GPU: ["Latest Training Jobs"]}.get(by, ["Most Common"])
    for key, found in (*parts.items(), (TOTAL, total)):
        most = found.most_common
        common = [f"{most[0]} ({most[1]})" if most else ""] if last else []
        if by == GPU:
            common = ["" if found is total else ", ".join(found.names[-LATEST_NAMES:])]
        owners = [] if by == "owner" else [len(found.owners)]
        jobs = [found.attempts, len(found.jobs)]
        rows.append([key, *jobs, *owners, f"{found.lost_hours:,.2f}", moment(found.latest), *common])
    title = "GPU" if by == GPU else by.replace("-", " ").title()
    headers = [title, "Failures", "Jobs", *([] if by == "owner" else ["Owners"]), "Lost-h", "Latest (UTC)"]
    return [*headers, *last], rows


def _action(failure: JobFailure) -> str:
    if failure.action == FAIL or not (failure.fresh_instances or failure.instance_check):
        return failure.action
    fresh = "fresh instances" if failure.fresh_instances else "instances"
    return f"{failure.action}, on {fresh}" + (" that SageMaker checks" if failure.instance_check else "")


def _choice(action: str, rule: str) -> tuple[str, ...]:
    return (str(clean(action)), *([f"by the rule: {clean(rule)}"] if rule else []))
