"""Sixty members that come and go at random: nobody ever sees a GPU beyond its part."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from job_queue.scheduler import FreeGpus, GpuAllocation
from tests.carrier_agent.carrier import Carrier
from tests.waiting import until

MEMBERS = 60

# Writes down which GPUs it has, and that it has them no longer, in the order in which that is so. A stop
# neither cuts nor repeats a note: SIGTERM is ignored, or has arrived already, while a note is written.
SCRIPT = """
note() {{ for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do echo $1 $gpu {tenths} {name} >> {book}; done; }}
trap '' TERM
note begin
trap "trap - EXIT; note end; exit 0" TERM; trap "trap '' TERM; note end" EXIT
sleep {seconds}
"""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_sees_a_gpu_beyond_its_part(carrier: Carrier, tmp_path: Path, seed: int) -> None:
    random, book = Random(seed), tmp_path / "book"
    left = [(f"m{number}-qstamp-1", random.choice((3, 5, 10, 10, 20, 40))) for number in range(MEMBERS)]
    active: dict[str, GpuAllocation] = {}
    row = FreeGpus(8)
    ended: Counter[str] = Counter()
    while left or active:
        for name, size in list(left):
            if (gpus := row.find_gpus(size)) is not None:
                allocation = GpuAllocation("c", gpus, min(size, 10))
                row.add(allocation)
                active[name] = allocation
                left.remove((name, size))
                seconds = random.choice((0, 0.1, 0.3))
                script = SCRIPT.format(tenths=allocation.tenths, name=name, seconds=seconds, book=book)
                carrier.assign(name, script, gpus=gpus, tenths=allocation.tenths)
                carrier.assign(name, script, gpus=gpus, tenths=allocation.tenths)  # and again: it meets itself
        if random.random() < 0.3 and active:
            carrier.stop(random.choice(sorted(active)))
        for name in until(lambda: [it for it in active if carrier.report(it) is not None]):
            ended[name] += 1
            report = carrier.report(name)
            assert report is not None
            assert report["status"] in ("Completed", "Stopped"), report
            row.remove(active.pop(name))
    assert len(ended) == MEMBERS
    assert set(ended.values()) == {1}
    check(book)


def check(book: Path) -> None:
    """No member ran twice, and at no time had members more than the whole of a GPU."""
    begun: Counter[tuple[str, str]] = Counter()
    taken: Counter[str] = Counter()
    for line in book.read_text().splitlines():
        what, gpu, tenths, name = line.split()
        begun[name, gpu] += what == "begin"
        taken[gpu] += int(tenths) if what == "begin" else -int(tenths)
        assert 0 <= taken[gpu] <= 10, line
    assert set(begun.values()) <= {1}
