"""UUIDs of GPUs in untrusted logs, and GPUs that return in another hardware failure."""

import time
from dataclasses import replace

import pytest

from job_queue.domain.failures import FailureClass, GpuFailure, gpus_in, remedy_of, returned_gpus
from job_queue.domain.failures.failed_gpus import MOST_GPUS, RETURN_SECONDS
from job_queue.domain.job import FailedAttempt, ReturnedGpu
from tests.jobs import NOW

A, B, C = (f"GPU-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "abc")
FAILED = FailedAttempt(1, FailureClass.HARDWARE, "A GPU failed.", "retry free", "built-in")


def numbered(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def test_gpus_in_lines_about_the_error_come_first() -> None:
    lines = [f"GPU 0: NVIDIA A10G (UUID: {A})", f"[rank1]: uncorrectable ECC error on {B.upper()}", f"GPU UUID : {C}"]
    assert gpus_in(None, lines) == (B, A, C)
    assert gpus_in(f"AlgorithmError: {C}\nexit code: 1", lines) == (B, C, A)


def test_few_gpus_are_recorded() -> None:
    line = " ".join(numbered(number) for number in range(20))
    assert gpus_in(None, [line, f"Xid 79, {B}"]) == (B, *(numbered(number) for number in range(MOST_GPUS - 1)))


@pytest.mark.parametrize(
    "text",
    [
        "GPU-12345678-1234-1234-1234",
        f"{A}0",
        f"{A}-1",
        f"x{A}",
        "GPU-????????-????-????-????-????????????",
        "GPU-12345678-1234-1234-1234-12345678901\u0663",
        "MIG-12345678-1234-1234-1234-123456789012",
    ],
)
def test_other_texts_are_no_uuids(text: str) -> None:
    assert gpus_in(text, [text]) == ()


def test_a_hostile_log_takes_little_time() -> None:
    hostile = ["GPU-" * 5_000, f"GPU-{'a' * 20_000}", "GPU-aaaaaaaa-" * 2_000] * 300
    began = time.process_time()
    assert gpus_in("GPU-" * 1_000, hostile) == ()
    assert time.process_time() - began < 5


def test_a_gpu_returns_within_a_day() -> None:
    now = GpuFailure("this#2", NOW, (B, A))
    earlier = [
        GpuFailure("this#1", NOW - 60, (A, B)),
        GpuFailure("other#1", NOW - RETURN_SECONDS, (A,)),
        GpuFailure("old#1", NOW - RETURN_SECONDS - 1, (A,)),
        GpuFailure("else#1", NOW - 5, (C,)),
        GpuFailure("this#2", NOW, (A, B)),
    ]
    assert returned_gpus(now, earlier) == (ReturnedGpu(B, 1, int(NOW - 60)), ReturnedGpu(A, 2, int(NOW - 60)))
    assert returned_gpus(now, earlier[2:]) == ()
    assert returned_gpus(now, [*earlier[:1], *earlier[:1]])[0].failures == 1, "an end may be recorded twice"


def test_the_remedy_names_a_gpu_that_returned() -> None:
    assert remedy_of(FAILED).startswith("Retry on other instances")
    gpus = [ReturnedGpu(uuid, 1, 0) for uuid in (A, B, C)]
    texts = [remedy_of(replace(FAILED, returned_gpus=tuple(gpus[:count]))) for count in (1, 2, 3)]
    assert [text.partition(" returned within a day")[0] for text in texts] == [
        A,
        f"{A} and another GPU",
        f"{A} and 2 more GPUs",
    ]
    assert all("AWS Support" in text and len(text) < 300 for text in texts)
