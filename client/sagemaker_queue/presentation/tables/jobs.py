"""Show jobs: the columns of ``smq ls``, the facts of ``smq show``, and the rows of attempts and transitions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from api_contract.models import ACTIVE, JobDetail, JobSummary, Transition
from sagemaker_queue.jobs.doc_links import reason_link
from sagemaker_queue.jobs.formatting import (
    NOT_ESTIMATED,
    age,
    amount,
    concise,
    end_cell,
    end_sentence,
    gpus,
    has_further_pools,
    in_words,
    instances,
    is_not_estimated_yet,
    moment,
    ordinal,
    outcome,
    short_owner,
    shortened,
    since,
    stage_sentence,
    stage_word,
    start_cell,
)
from sagemaker_queue.jobs.hyperparameters import command_of
from sagemaker_queue.queue.identity import sharing

_IF_IT_HANGS = {"notify": "there is a notice", "requeue": "it is stopped, and resumes from its checkpoint"}
HISTORY_HEADERS = ["Time (UTC)", "Attempt", "State", "Cause"]

Column = tuple[str, Callable[[JobSummary], object]]


def _elapsed(job: JobSummary) -> str:
    """Return the runtime of an active job's attempt, or of a finished job's last attempt; empty for waiting jobs.

    Older queues do not report when an attempt started. For their active jobs, the time in the present state is used.
    """
    if job.finished:
        return age(job.started, job.state_since)
    return age(job.started or job.state_since) if job.state in ACTIVE else ""


def _waited(job: JobSummary) -> str:
    """Return the time that a waiting job has been in its state; for other jobs, the wait for the first attempt.

    For such a job with several attempts, return an empty text, because the start of the first attempt is unknown.
    """
    if job.waits:
        return age(job.state_since)
    if job.finished and job.started is None:
        return age(job.entry_time, job.state_since)
    return age(job.entry_time, job.started) if job.started and job.attempt == 1 else ""


def _slots(job: JobSummary) -> str:
    """Return the slots that the job holds or held at its end, by pool; by instance type if the pools are unknown."""
    held = dict(job.slots or job.last_slots)
    if not held and job.finished and job.started and len(job.instance_types) == 1:
        held = {job.instance_types[0]: job.instances}
    return ", ".join(f"{count} {pool}" for pool, count in held.items())


def job_size(job: JobSummary) -> int | str:
    """Return the number of instances that the job needs, or its GPUs on a shared instance."""
    return job.instances if job.gpus is None else gpus(job.gpus)


def _since_submission(job: JobSummary) -> str:
    return age(job.entry_time, job.state_since if job.finished else None)


def _activity(job: JobSummary) -> str:
    if job.hung_since:
        return f"hung {age(job.hung_since)}"
    return f"idle {age(job.idle_since)}" if job.idle_since else stage_word(job) or job.state


_BRIEF_REASONS = {
    "HELD_BY_USER": "held",
    "NOT_BEFORE": "not yet",
    "DEPENDENCY": "after other jobs",
    "BACKOFF": "tried again soon",
    "REGION_UNREACHABLE": "region unreachable",
    "NO_SUCH_POOL": "no such pool",
    "NEVER_FITS": "never fits",
    "OUTSIDE_TRAINING_PLAN": "outside its plan",
    "DRAINED": "its pool is drained",
    "OVER_BUDGET": "budget is spent",
    "GROUP_LIMIT": "group's limit",
    "OWNER_LIMIT": "owner's limit",
    "OVER_LIMIT": "project's limit",
    "OVER_QUOTA_NON_PREEMPTIBLE": "beyond its quota",
    "WAITING_FOR_STOPPING": "others are leaving",
    "KEPT_FOR_PATIENT_JOB": "kept for another",
    "BEHIND_FAIR_SHARE": "beyond its share",
    "BEHIND_HIGHER_PRIORITY": "higher priorities",
    "BEHIND_OTHERS": "others come first",
    "WAITING_FOR_CAPACITY": "none is free",
}


def brief_reason(job: JobSummary) -> str | None:
    """Return the reason why a job waits or has failed, in a few words if possible.

    The reason is the class of a failure, a few words for a common reason, else the whole sentence.
    """
    if job.state == "failed" and job.failure_class:
        return job.failure_class
    return _BRIEF_REASONS.get(job.reason.code if job.reason else "") or _reason(job)


def _reason(job: JobSummary) -> str | None:
    if job.reason is None and job.hung_since:
        return hang_sentence(job)
    if job.reason is None and job.idle_since:
        return f"Its GPUs have done nothing for {age(job.idle_since)}."
    return shortened(concise(reason_with_class(job))) if job.reason or job.failure_class else None


def reason_with_class(job: JobSummary) -> str:
    """Return the reason why a job waits or has ended; for a failed job, begin with the class of its failure."""
    reason = job.reason.message if job.reason else ""
    if job.state != "failed" or not job.failure_class:
        return reason
    # The queue appends class and cause to SageMaker's reason, in brackets.
    before, found, cause = reason.rpartition(f"[{job.failure_class}: ")
    if found and cause.endswith("]"):
        return f"{job.failure_class}: {cause[:-1]} {before}".strip()
    return f"{job.failure_class}: {reason}" if reason else job.failure_class


def _unsaved(began: datetime) -> str:
    """Return a text about the work that a preemption would lose; ``began`` is the launch of the unsaved attempt."""
    return f"no checkpoint in the {in_words(since(began))} of this attempt, which a preemption would lose"


def hang_sentence(job: JobSummary) -> str:
    """Return a sentence about a job that hangs."""
    return f"It hangs: no log line, no checkpoint and idle GPUs for {age(job.hung_since)}."


COLUMNS: dict[str, Column] = {
    "job": ("Job Name", lambda job: job.job),
    "state": ("State", lambda job: job.state),
    "priority": ("Priority", lambda job: job.priority),
    "position": ("Position", lambda job: job.position),
    "turn": ("Turn", lambda job: ordinal(job.position) if job.position else _elapsed(job)),
    "activity": ("State", _activity),
    "project": ("Project", lambda job: job.project),
    "group": ("Group", lambda job: job.group),
    "owner": ("Owner", lambda job: short_owner(job.owner)),
    "user": ("User", lambda job: (short_owner(job.owner) or "").rpartition("/")[2]),
    "instances": ("Instances", job_size),
    "gpus": ("GPUs", lambda job: job.gpus or job.carries),
    "carrier": ("Carrier", lambda job: job.carrier),
    "attempt": ("Attempt", lambda job: job.attempt),
    "age": ("Age", _since_submission),
    "elapsed": ("Elapsed", _elapsed),
    "waited": ("Waited", _waited),
    "since": ("In State", lambda job: age(job.state_since)),
    "training-job": ("Training Job", lambda job: job.training_job_name),
    "held": ("Held", lambda job: "yes" if job.held else None),
    "preemptible": ("Preemptible", lambda job: "yes" if job.may_be_preempted else "no"),
    "interactive": ("Interactive", lambda job: "yes" if job.interactive else "no"),
    "pools": ("Pools", lambda job: ", ".join(job.pools)),
    "slots": ("Slots", _slots),
    "type": ("Type", lambda job: ", ".join(job.instance_types)),
    "when": ("Starts", start_cell),
    "ends": ("Ends", end_cell),
    "region": ("Region", lambda job: job.region),
    "account": ("Account", lambda job: job.account),
    "failure": ("Failure", lambda job: job.failure_class),
    "reason": ("Reason", _reason),
}


def job_facts(job: JobSummary) -> dict[str, object]:
    """Return the facts about a job by title; None or empty for facts that are not shown."""
    stopping = " (cancelled, being stopped)" if job.cancel_requested and not job.finished else ""
    return {
        "State": f"{job.state}{stopping}{_for_how_long(job)}{_stage(job)}",
        "Priority": job.priority,
        "Position": job.position,
        "Starts": _starts(job),
        "Ends": end_sentence(job.expected_end),
        "Hangs": hang_sentence(job) if job.hung_since else None,
        "Idle": job.idle_since
        and f"its GPUs have done nothing for {in_words(since(job.idle_since))}, since {moment(job.idle_since)}",
        "Unsaved": job.unsaved_since and _unsaved(job.unsaved_since),
        "Reason": job.reason and job.reason.message and f"{concise(job.reason.message)} ({job.reason.code})",
        "See": reason_link(job.reason.code) if job.waits and job.reason and job.reason.code else None,
        "Project": job.project,
        "Group": job.group,
        "Owner": _owner(job.owner),
        "Held": "yes: it starts only after smq release" if job.held else None,
        "Interactive": "yes: within its project's quota it comes before training jobs" if job.interactive else None,
        "Preemptible": None if job.may_be_preempted else "no: it uses only quota, and is not stopped to make room",
        "Pools": ", ".join(job.pools),
        "Instances": _instances(job),
        "GPUs": job.gpus
        and f"{job.gpus:g} of an instance that it shares" + (f": {job.carrier}" if job.carrier else ""),
        "Carries": job.carries and f"{amount(job.carries, 'GPU')} for jobs that share an instance",
        "Accepts": ", ".join(map(str, job.sizes)) if job.slots else None,
        "Cut off": job.cut_off and f"at {moment(job.cut_off)}: its training plan ends, and it waits again",
        **limit_facts(job),
        "Retries": f"{job.retried} of {job.retries} used" if job.retries else None,
        "Submitted": moment(job.entry_time),
        **(_times(job) if isinstance(job, JobDetail) else {}),
        "Training job": job.training_job_name,
        "Region": job.region,
        "Account": job.account,
    }


def limit_facts(job: JobSummary) -> dict[str, object]:
    """Return the facts about a job's deadlines, limits and hangs by title; None for facts that are not shown."""
    return {
        "Not before": moment(job.not_before),
        "Start by": _start_by(job),
        "Runtime": job.max_total_runtime
        and f"{in_words(job.run_seconds)} of {in_words(job.max_total_runtime)} used by ended attempts",
        "Preemptions": None
        if job.max_preemptions is None
        else f"{job.preemptions} of {job.max_preemptions}; then it may use quota only, and is not stopped to make room",
        "If it hangs": job.on_hang and _IF_IT_HANGS.get(job.on_hang, job.on_hang),
        "Hung before": f"{amount(job.hangs, 'attempt')}, stopped by the queue" if job.hangs else None,
    }


def _start_by(job: JobSummary) -> str | None:
    """Return the deadline for a job's start, the action at the deadline, and whether the job is expected to be late."""
    if job.start_by is None:
        return None
    actions = {"cancel": "is stopped", "next_pool": "may run in the further pools of its project"}
    action = actions.get(job.start_by_action or "", "is only announced")
    if job.start_missed:
        if job.start_by_action == "next_pool" and isinstance(job, JobDetail) and not has_further_pools(job):
            action = "keeps waiting, as its project has no further pools"
        return f"{moment(job.start_by)}; it had not started by then, and {action}"
    expected = job.expected_start and (job.expected_start.likely or job.expected_start.start)
    late = "; it is expected to be late" if expected and expected > job.start_by else ""
    return f"{moment(job.start_by)}; if it has not, it {action}{late}"


def attempt_headers(job: JobDetail) -> list[str]:
    """Return the headers of ``attempt_rows``.

    The column Region is present only if an attempt was in another region than the queue; the same applies to Account.
    """
    sites = [title for title, has in zip(("Region", "Account"), _sites(job)) if has]
    return ["No.", "Training Job", *sites, *(["Instances"] if job.sizes else []), "Started", "Ended", "Ran", "Outcome"]


def _sites(job: JobDetail) -> tuple[bool, bool]:
    """Return whether any attempt was in another region than the queue, and whether any was in another account."""
    return any(run.region for run in job.attempts), any(run.account for run in job.attempts)


def attempt_rows(job: JobDetail) -> list[list[object]]:
    """Return a row for each attempt. An empty cell of region or account stands for the queue's own."""
    has_region, has_account = _sites(job)
    return [
        [
            *[run.attempt, run.training_job_name],
            *([run.region] if has_region else []),
            *([run.account] if has_account else []),
            *([run.instances] if job.sizes else []),
            *[moment(run.started), moment(run.ended), age(run.started, run.ended)],
            outcome(run.outcome, run.failure_class),
        ]
        for run in job.attempts
    ]


def history_rows(transitions: Iterable[Transition]) -> list[list[object]]:
    """Return a row for each transition, below ``HISTORY_HEADERS``."""
    return [[moment(change.at), change.attempt, change.state, concise(change.cause)] for change in transitions]


def _instances(job: JobSummary) -> object:
    if job.gpus is not None:
        return None
    return instances(job.slots or job.last_slots) or ", ".join(map(str, job.sizes)) or job.instances


def _owner(arn: str | None) -> str | None:
    shared = sharing(arn) if arn else None
    return f"{arn} ({shared})" if shared else arn


def _for_how_long(job: JobSummary) -> str:
    if job.state_since is None:
        return ""
    return f", {in_words(since(job.state_since))} ago" if job.finished else f", for {in_words(since(job.state_since))}"


def _starts(job: JobSummary) -> str | None:
    if job.expected_start is None:
        return NOT_ESTIMATED if job.waits and is_not_estimated_yet(job) else None
    return job.expected_start.message


def _stage(job: JobSummary) -> str:
    """Return SageMaker's step before or after the training of a running job, with its duration; else empty text."""
    sentence = stage_sentence(job)
    if sentence is None:
        return ""
    seconds = f", for {in_words(since(job.secondary_status_since))}" if job.secondary_status_since else ""
    return f"; {sentence} (SecondaryStatus {job.secondary_status}{seconds})"


def _times(job: JobDetail) -> dict[str, object]:
    """Return the runtime of all attempts together and the waiting time, in words."""
    if job.entry_time is None or any(run.started is None for run in job.attempts):
        return {}
    ran = sum(since(run.started, run.ended) for run in job.attempts)
    waited = since(job.entry_time, job.state_since if job.finished else None) - ran
    attempts = f" in {amount(len(job.attempts), 'attempt')}" if len(job.attempts) > 1 else ""
    return {"Ran": f"{in_words(ran)}{attempts}" if job.attempts else None, "Waited": in_words(waited)}


def _command(request: Any) -> str | None:
    """Return the command of ``smq submit``, else an estimator's script, else the container's entry point."""
    parameters, algorithm = request.get("HyperParameters", {}), request.get("AlgorithmSpecification", {})
    words = command_of(request)
    if words is not None:
        return shlex.join(words) or (
            "none: the job serves shells (smq shell), and ends by itself after some time without a shell"
        )
    script = str(parameters.get("sagemaker_program", "")).strip('"')
    begins = algorithm.get("ContainerEntrypoint", []) + algorithm.get("ContainerArguments", [])
    return script or (shortened(shlex.join(map(str, begins))) if begins else None)


def _output(job: JobDetail) -> str | None:
    """Return the S3 folder of the latest attempt's output; before the first attempt, the request's S3OutputPath."""
    folder: str | None = job.request.get("OutputDataConfig", {}).get("S3OutputPath")
    launched = [run for run in job.attempts if run.training_job_name]
    if not folder or not launched:
        return folder
    # If the attempt ran in another region, its output is in the bucket that the policy names for the project and that
    # region. The policy is not read here, so the bucket's name is unknown.
    bucket_note = f" (in the project's bucket of {launched[-1].region})" if launched[-1].region else ""
    return f"{folder.rstrip('/')}/{launched[-1].training_job_name}/output/{bucket_note}"


def request_facts(job: JobDetail) -> dict[str, object]:
    """Return the main facts of a job's request by title; ``smq show --json`` prints the whole request."""
    request = job.request
    resources = request.get("ResourceConfig", {})
    algorithm = request.get("AlgorithmSpecification", {})
    groups = resources.get("InstanceGroups") or [resources]
    seconds = request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    return {
        "Command": _command(request),
        "Image": algorithm.get("TrainingImage") or algorithm.get("AlgorithmName"),
        "Instances": ", ".join(
            f"{group.get('InstanceCount')} x {group['InstanceType']}" for group in groups if "InstanceType" in group
        ),
        "Maximum runtime": seconds and in_words(seconds),
        "Role": request.get("RoleArn"),
        "Output": _output(job),
        "Checkpoints": request.get("CheckpointConfig", {}).get("S3Uri") or "none: a preemption starts from scratch",
        "Tags": ", ".join(f"{tag.get('Key')}={tag.get('Value')}" for tag in request.get("Tags", [])),
    }
