"""Since when slots are free that came free within one step."""

from job_queue.simulation.fleet.free_slots import FreeSlots


def freed(*times: float, idle: int = 0) -> FreeSlots:
    """One slot left at each of these times, and so many were free before."""
    slots = FreeSlots()
    for time in times:
        slots.free(time, {"p5": 1})
    slots.record_idle({"p5": len(times) + idle})
    return slots


def test_who_starts_first_has_what_came_free_first() -> None:
    slots = freed(30.0, 10.0, 20.0)
    assert [slots.take({"p5": 1}) for _ in range(4)] == [10, 20, 30, None]


def test_a_gang_has_all_its_slots_when_the_last_of_them_comes_free() -> None:
    slots = freed(10.0, 20.0, 30.0)
    assert slots.take({"p5": 2}) == 20
    assert slots.take({"p5": 1}) == 30


def test_slots_that_were_free_before_are_taken_first() -> None:
    slots = freed(10.0, idle=2)
    assert slots.take({"p5": 3}) == 10
    assert freed(10.0, idle=2).take({"p5": 2}) is None


def test_what_is_left_of_one_who_had_many_is_for_the_next() -> None:
    slots = FreeSlots()
    slots.free(10, {"p5": 3, "p4": 1})
    slots.free(20, {"p5": 1})
    slots.record_idle({"p5": 4, "p4": 1})
    assert [slots.take({"p5": 2, "p4": 1}), slots.take({"p5": 1}), slots.take({"p5": 1})] == [10, 10, 20]


def test_another_step_knows_nothing_of_the_one_before() -> None:
    slots = freed(10.0)
    slots.begin()
    slots.record_idle({"p5": 1})
    assert slots.take({"p5": 1}) is None
