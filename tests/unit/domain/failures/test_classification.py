"""The class of a failed attempt, from SageMaker's reason, the exit code and the last log lines."""

import pytest

from job_queue.domain.failures import DEFAULT_ACTIONS, MEANINGS, REMEDIES, FailureClass, classify, exit_code_of

MODULE = (
    "AlgorithmError: ExecuteUserScriptError:\nExitCode 1\n"
    "ErrorMessage \"ModuleNotFoundError: No module named 'x'\"\n"
    'Command "/opt/conda/bin/python3.8 train.py --note Xid-79"'
)
OUT_OF_GPU_MEMORY = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ..."
TIME_OUT = (
    "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=64, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600410 milliseconds before timing out."
)


def test_every_class_has_a_meaning_a_remedy_and_an_action() -> None:
    assert set(MEANINGS) == set(REMEDIES) == set(DEFAULT_ACTIONS) == set(FailureClass)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (MODULE, 1),
        ("AlgorithmError: , exit code: 137", 137),
        ("AlgorithmError: Exit Code: 139", 139),
        ("InternalServerError: We encountered an internal error. Please try again.", None),
        (None, None),
    ],
)
def test_the_exit_code_is_read_from_the_reason(reason: str | None, code: int | None) -> None:
    assert exit_code_of(reason) == code


def test_the_sentence_names_the_module_that_is_missing() -> None:
    failure = classify(MODULE, None, [])
    assert failure.failure_class is FailureClass.USER_ERROR
    assert failure.sentence == "The module x is not installed."
    assert failure.evidence[0].startswith("ErrorMessage")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([TIME_OUT], FailureClass.COMMUNICATION),
        ([TIME_OUT, OUT_OF_GPU_MEMORY], FailureClass.GPU_MEMORY),
        ([TIME_OUT, "NVRM: Xid (PCI:0000:10:1c): 79, pid=123, GPU has fallen off the bus."], FailureClass.HARDWARE),
        ([TIME_OUT, "[rank3]: ValueError: invalid learning rate"], FailureClass.USER_ERROR),
        ([], FailureClass.UNKNOWN),
    ],
)
def test_the_cause_is_chosen_and_not_its_consequences(lines: list[str], expected: FailureClass) -> None:
    assert classify("AlgorithmError: ExecuteUserScriptError:\nExitCode 1", None, lines).failure_class is expected


def test_a_program_cannot_claim_that_sagemaker_failed() -> None:
    line = "InternalServerError: We encountered an internal error. Please try again."
    assert classify(line, None, []).failure_class is FailureClass.INTERNAL
    assert classify("AlgorithmError: , exit code: 1", 1, [line]).failure_class is not FailureClass.INTERNAL
