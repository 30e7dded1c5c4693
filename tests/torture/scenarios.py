"""Where the systematic search starts: two jobs, one slot, and two invocations at the same time."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from job_queue.domain.names import ATTEMPT_TAG
from tests.jobs import P5
from tests.torture.actors import Actors
from tests.torture.adversary import Adversary
from tests.torture.failure_samples import LOST_PEER, Failed
from tests.torture.faults import Fault
from tests.torture.process import Process
from tests.torture.setups import Setup
from tests.torture.world import World

ONE_SLOT = Setup(capacity=1, jobs=2)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What has happened, and what happens now at the same time."""

    prepare: Callable[[World, Actors], None]
    begin: Callable[[Actors], list[Process]]
    setup: Setup = ONE_SLOT


def _submit(actors: Actors, name: str, priority: int) -> Process:
    return actors.submit_job(name, {"InstanceType": P5, "InstanceCount": 1}, {"priority": str(priority)})


def _run(world: World, process: Process, fates: dict[str, Fault] | None = None) -> None:
    """To its end; the first call of a kind may have a fate of its own."""
    fates = dict(fates or {})
    while not process.ended:
        kind = process.call.kind if process.call else ""
        world.resume(process, fates.pop(kind, Fault.NONE))


def _nothing(world: World, actors: Actors) -> None:
    """An empty queue."""


def _one_runs(world: World, actors: Actors) -> None:
    _run(world, _submit(actors, "low", 1))


def _one_runs_and_one_waits(world: World, actors: Actors) -> None:
    _one_runs(world, actors)
    _run(world, _submit(actors, "next", 1))


def _one_has_ended(world: World, actors: Actors) -> None:
    _one_runs(world, actors)
    actors.end("low-qstamp-1", tell=False)


def _one_makes_room(world: World, actors: Actors) -> None:
    _one_runs(world, actors)
    _run(world, _submit(actors, "high", 9))
    actors.end("low-qstamp-1", "Stopped", tell=False)
    world.now += 60


def _one_is_in_doubt(world: World, actors: Actors) -> None:
    _run(world, _submit(actors, "low", 1), {"create": Fault.LATE})
    world.now += 60
    world.sound = True


def _one_was_launched_unheard(world: World, actors: Actors) -> None:
    """SageMaker has the attempt, nobody knows it, and the call is too old to land again."""
    _run(world, _submit(actors, "low", 1), {"create": Fault.UNANSWERED})
    world.now += 1200
    world.sound = True


def _one_was_refused(world: World, actors: Actors) -> None:
    _run(world, _submit(actors, "low", 1), {"create": Fault.CAPACITY})
    world.now += 60
    world.sound = True


def _one_has_failed_and_its_next_name_is_taken(world: World, actors: Actors) -> None:
    """Somebody has copied the tags of the first attempt to a training job of their own, under the second one's name."""
    request = {"InstanceType": P5, "InstanceCount": 1}
    _run(world, actors.submit_job("low", request, {"priority": "1", "retries": "2"}))
    tags = {**world.sagemaker.jobs["low-qstamp-1"].tags, ATTEMPT_TAG: "2"}
    Adversary(world, actors, random.Random(0)).create_job("low-qstamp-2", tags, P5)
    actors.end("low-qstamp-1", "Failed", "", "AlgorithmError: exit code 1", tell=False)


def _one_was_deleted_and_a_call_is_late(world: World, actors: Actors) -> None:
    """The first call for an attempt is under way; the second one launched it, and it has failed and was deleted."""
    request = {"InstanceType": P5, "InstanceCount": 1}
    _run(world, actors.submit_job("low", request, {"priority": "1", "retries": "2"}), {"create": Fault.LATE})
    world.now += 60
    _run(world, actors.tick())
    actors.end("low-qstamp-1", "Failed", "", "AlgorithmError: exit code 1")
    world.sagemaker.delete("low-qstamp-1")
    world.now += world.setup.deletion_seconds


def _a_gpu_has_failed(world: World, actors: Actors) -> None:
    _one_runs(world, actors)
    actors.end("low-qstamp-1", "Failed", "", "AlgorithmError: NVRM: Xid 79, GPU has fallen off the bus", tell=False)


def _a_gpu_has_failed_and_no_check_is_offered(world: World, actors: Actors) -> None:
    """The next attempt is asked for with a check of its instances, which SageMaker refuses in this world."""
    _a_gpu_has_failed(world, actors)
    world.sagemaker.refuses_checks = True


def _one_has_failed(world: World, actors: Actors) -> None:
    """The log says that the failure is no reason to use the single retry, and the reason says nothing."""
    request = {"InstanceType": P5, "InstanceCount": 1}
    _run(world, actors.submit_job("low", request, {"priority": "1", "retries": "1"}))
    world.now += 400
    world.sagemaker.logs.failed["low-qstamp-1"] = Failed(LOST_PEER, world.now, readable_at=world.now)
    actors.end("low-qstamp-1", "Failed", "", LOST_PEER.reason)


def _two_can_start(world: World, actors: Actors) -> None:
    both = {"InstanceType": P5, "InstanceCount": 2}
    _run(world, actors.submit_job("low", both, {"priority": "1"}))
    _run(world, _submit(actors, "next", 1))
    _run(world, _submit(actors, "last", 1))
    actors.end("low-qstamp-1", tell=False)


def _one_left_its_instances_warm(world: World, actors: Actors) -> None:
    kept = {"InstanceType": P5, "InstanceCount": 1, "KeepAlivePeriodInSeconds": 1800}
    _run(world, actors.submit_job("low", kept, {"priority": "1"}))
    actors.end("low-qstamp-1", tell=False)
    _run(world, actors.deliver_state("low-qstamp-1"))


def _submit_what_does_not_match(actors: Actors) -> Process:
    other = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 50}
    return actors.submit_job("high", other, {"priority": "9"})


SCENARIOS: dict[str, Scenario] = {
    "submission-and-tick-in-doubt": Scenario(_one_is_in_doubt, lambda it: [it.tick(), _submit(it, "high", 9)]),
    "two-submissions": Scenario(_nothing, lambda it: [_submit(it, "low", 1), _submit(it, "high", 9)]),
    "submission-and-end": Scenario(
        _one_has_ended, lambda it: [_submit(it, "high", 9), it.deliver_state("low-qstamp-1")]
    ),
    "cancel-and-tick-in-doubt": Scenario(_one_is_in_doubt, lambda it: [it.tick(), it.cancel_job("low")]),
    "unheard-and-submission": Scenario(_one_was_launched_unheard, lambda it: [it.tick(), _submit(it, "high", 9)]),
    "refused-and-submission": Scenario(_one_was_refused, lambda it: [it.tick(), _submit(it, "high", 9)]),
    "stopped-and-tick": Scenario(_one_makes_room, lambda it: [it.deliver_state("low-qstamp-1"), it.tick()]),
    "two-launches-and-tick": Scenario(
        _two_can_start, lambda it: [it.deliver_state("low-qstamp-1"), it.tick()], Setup(capacity=2, jobs=3)
    ),
    "warm-pool-in-the-way": Scenario(
        _one_left_its_instances_warm, lambda it: [_submit_what_does_not_match(it), it.tick()]
    ),
    "taken-name-and-tick": Scenario(
        _one_has_failed_and_its_next_name_is_taken,
        lambda it: [it.deliver_state("low-qstamp-1"), it.tick()],
        Setup(capacity=2, jobs=1, adversary=1.0),
    ),
    "deleted-and-late-call": Scenario(
        _one_was_deleted_and_a_call_is_late,
        lambda it: [it.deliver_first(), it.tick()],
        Setup(capacity=2, jobs=1),
    ),
    "failed-gpu-and-tick": Scenario(_a_gpu_has_failed, lambda it: [it.deliver_state("low-qstamp-1"), it.tick()]),
    "refused-check-and-tick": Scenario(
        _a_gpu_has_failed_and_no_check_is_offered, lambda it: [it.deliver_state("low-qstamp-1"), it.tick()]
    ),
    "failure-told-and-tick": Scenario(
        _one_has_failed, lambda it: [it.deliver_first(), it.tick()], Setup(capacity=1, jobs=1, failures=1.0)
    ),
    "two-cancels": Scenario(_one_runs_and_one_waits, lambda it: [it.cancel_job("low"), it.cancel_job("next")]),
}
