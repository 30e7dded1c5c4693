"""Decide whether a training job is an attempt of the queue: by its name, and by the proof in its tags.

Each job has a random secret, which is recorded before its first launch and never shown. Each CreateTrainingJob call
carries a proof: the call's number, and a digest of the number and the attempt's name under the secret.

Other people may read the proof in the tags and copy it. So a proof counts only with the name for which it was made, and
no longer counts after SageMaker has refused its call. A proof with a higher number than all recorded calls counts too,
because the tables may have been restored to an earlier time.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping

from job_queue.domain.fleet.sites import Site, same_place
from job_queue.domain.job import EndedAttempt, Job, JobRecord
from job_queue.domain.launching.numbers import contains
from job_queue.domain.names import (
    ATTEMPT_TAG,
    JOB_TAG,
    PROOF_TAG,
    QUEUE_NAME,
    QUEUE_TAG,
    SUBMISSION_TAG,
    apply_qstamp,
    attempt_number,
)

_PROOF = re.compile(r"([1-9][0-9]{0,8})-([0-9a-f]{64})", re.ASCII)
MOST_TAGS = 50  # tags of a training job


def is_of_queue(tags: Mapping[str, str]) -> bool:
    """Return whether a training job has the tag of the queue. Other people can set the same tag."""
    return tags.get(QUEUE_TAG) == QUEUE_NAME


def attempt_tags(job: Job, others: int = 0, call: int | None = None) -> dict[str, str]:
    """Return the tags of a job's attempt, with the proof of a call.

    :param others: number of other tags. A request that an earlier version accepted may leave room for four tags only.
        Then the tag with the attempt's number is left out, because the name also has the number.
    :param call: the call's number; None: the latest call, whose intent is recorded.
    """
    number = job.sent if call is None else call
    tags = {QUEUE_TAG: QUEUE_NAME, JOB_TAG: job.name, SUBMISSION_TAG: job.submission}
    if job.secret is not None and job.launched is not None:
        tags[PROOF_TAG] = f"{number}-{_digest(job.secret, job.launched, number)}"
    return {**tags, ATTEMPT_TAG: str(job.attempt)} if others + len(tags) < MOST_TAGS else tags


def is_named_as_attempt(name: str, tags: Mapping[str, str]) -> bool:
    """Return whether a training job is named like an attempt of the job that its tags name."""
    attempt = attempt_number(name)
    return attempt is not None and name == apply_qstamp(tags.get(JOB_TAG, ""), attempt)


def is_current_attempt_of(name: str, tags: Mapping[str, str], job: Job) -> bool:
    """Return whether a training job is this submission's recorded attempt, or its next attempt if the job waits.

    An attempt that was launched by a version without proofs is recognised by the recorded name, until the attempt ends.
    """
    expected = job.launched if job.launched is not None else apply_qstamp(job.name, job.attempt)
    if name != expected or not _claims(tags, job) or tags.get(ATTEMPT_TAG, str(job.attempt)) != str(job.attempt):
        return False
    return has_valid_proof(name, tags, job) or (job.secret is None and job.launched is not None)


def has_valid_proof(name: str, tags: Mapping[str, str], job: Job) -> bool:
    """Return whether a training job has a valid proof of this submission, even if it is not the current attempt."""
    attempt, proof = attempt_number(name), _PROOF.fullmatch(tags.get(PROOF_TAG, ""))
    if job.secret is None or attempt is None or proof is None or not _claims(tags, job):
        return False
    number = int(proof[1])
    may_have_taken_effect = number > job.sent or (attempt == job.attempt and contains(job.valid_proofs, number))
    if name != apply_qstamp(job.name, attempt) or not may_have_taken_effect:
        return False
    return hmac.compare_digest(proof[2], _digest(job.secret, name, number))


def has_proof_of_any_call(name: str, tags: Mapping[str, str], job: Job) -> bool:
    """Return whether a training job has the proof of any call of this submission, even of a refused call.

    Other people may have read such a proof and copied it.
    """
    proof = _PROOF.fullmatch(tags.get(PROOF_TAG, ""))
    if job.secret is None or proof is None or not _claims(tags, job):
        return False
    return hmac.compare_digest(proof[2], _digest(job.secret, name, int(proof[1])))


def call_number(tags: Mapping[str, str]) -> int | None:
    """Return the number of the CreateTrainingJob call whose proof is in these tags, or None without a proof."""
    proof = _PROOF.fullmatch(tags.get(PROOF_TAG, ""))
    return int(proof[1]) if proof else None


def ended_attempt(name: str, record: JobRecord, site: Site | None = None) -> EndedAttempt | None:
    """Return the attempt of this name and site that is recorded as ended, or None. Attempts on a carrier do not count.

    :param site: None: the home site.
    """
    found = (it for it in record.attempts if it.training_job_name == name and it.carrier is None)
    return next((it for it in found if same_place(it.site, site)), None)


def is_ended_attempt(name: str, tags: Mapping[str, str], record: JobRecord, site: Site | None = None) -> bool:
    """Return whether a training job is an attempt of this submission that is recorded as ended.

    The record shows that SageMaker once accepted the name from the queue. A proof without a record is not enough,
    because other people may have copied the proof of a call that SageMaker refused.
    """
    return has_proof_of_any_call(name, tags, record.job) and ended_attempt(name, record, site) is not None


def _claims(tags: Mapping[str, str], job: Job) -> bool:
    return is_of_queue(tags) and tags.get(JOB_TAG) == job.name and tags.get(SUBMISSION_TAG) == job.submission


def _digest(secret: str, name: str, number: int) -> str:
    return hmac.new(secret.encode(), f"{name}/{number}".encode(), hashlib.sha256).hexdigest()
