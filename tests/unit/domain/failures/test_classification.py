"""The class of a failed attempt, from SageMaker's reason, the exit code and the last log lines."""

import pytest

from job_queue.domain.failures import DEFAULT_ACTIONS, MEANINGS, REMEDIES, FailureClass, classify, exit_code_of
from local_cloud.sagemaker.job_processes import failures as emulated

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
        ('AlgorithmError: ExecuteUserScriptError:\nExitCode -9\nErrorMessage ""\nCommand "x", exit code: 1', -9),
        ("AlgorithmError: the exit code: 3 of a child, exit code: 137", 137),
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
    ("line", "sentence"),
    [
        ("ImportError: cannot import name 'a' from 'b.c' (/x)", "a cannot be imported from b.c."),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x.yml'", "The file x.yml does not exist."),
        ("train.py: error: unrecognized arguments: --lr 3", "The program does not know the argument --lr."),
        ("train.py: error: the following arguments are required: --lr", "The argument --lr is missing."),
        ("ValueError: no such optimizer", "The program raised ValueError: no such optimizer."),
        ("OSError: [Errno 28] No space left on device: '/tmp/a'", "A disk is full: no space left for /tmp/a."),
        (OUT_OF_GPU_MEMORY, "A GPU has no memory left: the program asked for 2.00 GiB."),
        ("Unable to download object s3://b/k (AccessDenied: Access Denied)", "Access to s3://b/k was denied."),
        ("Unable to download object s3://b/k (NoSuchKey: no key)", "S3 has no s3://b/k."),
        ("is not authorized to perform: s3:PutObject on x", "The role is not allowed to call s3:PutObject."),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train/a'",
         "The input /opt/ml/input/data/train/a does not exist."),
        ("NVRM: Xid (PCI:0000:79:00): 48, pid=1", "A GPU reported a hardware error (Xid 48)."),
    ],
)  # fmt: skip
def test_the_sentence_names_what_is_missing(line: str, sentence: str) -> None:
    assert classify("AlgorithmError: , exit code: 1", None, [line]).sentence == sentence


EXCEPTION = "[rank3]: ValueError: invalid learning rate"
XID = "NVRM: Xid (PCI:0000:10:1c): 79, pid=123, GPU has fallen off the bus."
OTHER_XID = "NVRM: Xid (PCI:0000:79:00): 31, pid=123, name=python, MMU Fault"
KILLED = (
    "torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: 178) of binary: python"
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([TIME_OUT], FailureClass.COMMUNICATION),
        ([TIME_OUT, OUT_OF_GPU_MEMORY], FailureClass.GPU_MEMORY),
        ([TIME_OUT, XID], FailureClass.HARDWARE),
        ([TIME_OUT, OTHER_XID], FailureClass.COMMUNICATION),
        ([OTHER_XID, OUT_OF_GPU_MEMORY], FailureClass.GPU_MEMORY),
        ([TIME_OUT, EXCEPTION], FailureClass.USER_ERROR),
        ([EXCEPTION, KILLED], FailureClass.USER_ERROR),
        ([TIME_OUT, KILLED], FailureClass.MEMORY),
        (["RuntimeError: unable to write to file </torch_1_2>: No space left on device (28)"], FailureClass.MEMORY),
        (["RuntimeError: CUDA error: an illegal memory access was encountered"], FailureClass.UNKNOWN),
        (["Traceback (most recent call last):", "  File", "botocore.errorfactory.Strange: x"], FailureClass.USER_ERROR),
        ([], FailureClass.UNKNOWN),
    ],
)
def test_the_cause_is_chosen_and_not_its_consequences(lines: list[str], expected: FailureClass) -> None:
    for order in (lines, lines[::-1]) if len(lines) == 2 else (lines,):
        assert classify("AlgorithmError: ExecuteUserScriptError:\nExitCode 1", None, order).failure_class is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (2, FailureClass.USER_ERROR),
        (127, FailureClass.USER_ERROR),
        (137, FailureClass.MEMORY),
        (135, FailureClass.MEMORY),
        (-9, FailureClass.MEMORY),
        (1, FailureClass.UNKNOWN),
        (139, FailureClass.UNKNOWN),
        (None, FailureClass.UNKNOWN),
    ],
)
def test_without_a_text_the_exit_code_decides(code: int | None, expected: FailureClass) -> None:
    assert classify(None, code, []).failure_class is expected


def test_a_killed_container_ran_out_of_memory_although_its_peers_report_a_time_out() -> None:
    assert classify("AlgorithmError: , exit code: 137", None, [TIME_OUT]).failure_class is FailureClass.MEMORY
    assert classify("AlgorithmError: , exit code: 137", None, [OUT_OF_GPU_MEMORY]).failure_class is (
        FailureClass.GPU_MEMORY
    )


# From real logs of jobs that failed for another reason, or not at all.
HARMLESS = [
    "[rank0]:[W1019 08:16:22.397556647 ProcessGroupNCCL.cpp:1477] Warning: destroy_process_group() was not called",
    "algo-1:57:101 [0] NCCL INFO Channel 00/02 :    0   1   2   3",
    "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
    "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 4797 closing signal SIGTERM",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "2023-01-01 00:00:00 W dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: "
    "libnvinfer.so.7: cannot open shared object file: No such file or directory; LD_LIBRARY_PATH: /usr/lib",
    'SM_USER_ARGS=["--note","CUDA out of memory","--xid","Xid 79"]',
    "fairseq.logging.progress_bar | tensorboard not found, please install with: pip install tensorboardX",
    "UserWarning: [Errno 28] No space left on device.  joblib will operate in serial mode",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_lines_are_no_evidence(line: str) -> None:
    assert classify("AlgorithmError: , exit code: 1", None, [line]).failure_class is FailureClass.UNKNOWN


def test_arguments_of_the_program_are_no_evidence() -> None:
    arguments = "['python', 'train.py', '--note', 'CUDA out of memory'] exits with return code = 1"
    assert classify(None, None, [arguments]).failure_class is FailureClass.UNKNOWN


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (emulated.CAPACITY, FailureClass.CAPACITY),
        (emulated.NO_PLAN_CAPACITY, FailureClass.CAPACITY),
        (emulated.INTERNAL, FailureClass.INTERNAL),
        (emulated.killed(137), FailureClass.MEMORY),
        ("MaxRuntimeExceeded", FailureClass.TIME_LIMIT),
        ("ClientError: the text of a refusal that is not known", FailureClass.USER_ERROR),
    ],
)
def test_reasons_of_the_local_cloud_have_their_classes(reason: str, expected: FailureClass) -> None:
    assert classify(reason, None, []).failure_class is expected


@pytest.mark.parametrize("line", emulated.HARDWARE_LINES)
def test_lines_of_defective_gpus_of_the_local_cloud_are_recognised(line: str) -> None:
    assert classify("AlgorithmError: , exit code: 134", None, [line]).failure_class is FailureClass.HARDWARE


@pytest.mark.parametrize("text", ["InternalServerError: We encountered an internal error.", emulated.CAPACITY])
def test_a_program_cannot_claim_a_failure_of_aws(text: str) -> None:
    free = {FailureClass.INTERNAL, FailureClass.CAPACITY}
    assert classify(text, None, []).failure_class in free
    assert classify("AlgorithmError: , exit code: 1", 1, [text]).failure_class not in free
    assert classify(f"AlgorithmError: {text}, exit code: 1", 1, []).failure_class not in free
    assert classify(f'AlgorithmError: ExecuteUserScriptError:\nErrorMessage "{text}"', 1, []).failure_class not in free
