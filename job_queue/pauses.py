"""Pauses of pools: where SageMaker lacks instances, one job at a time is tried, after ever longer waits.

A refusal of n instances says something about all who ask for n or more there, and nothing about who asks for less.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from job_queue.backoff import backoff_seconds
from job_queue.records import Item, Job
from job_queue.scheduler import Policy, Slots

FORGOTTEN_SECONDS = 3600  # after its end; whatever SageMaker lacked then says nothing any more


@dataclass(frozen=True, slots=True)
class Pause:
    """Instances that SageMaker refused, and until when nobody asks for them."""

    place: str  # a pool; in a pool of any type `<pool>/<instance types>`
    until: int  # epoch seconds
    since: int  # epoch seconds of the last refusal
    failures: int = 1  # refusals in a row
    instances: int = 1  # it holds for who asks for so many or more
    largest: int = 1  # the most that were refused

    def item(self) -> Item:
        """As the tables keep it."""
        return {
            "until": self.until,
            "since": self.since,
            "failures": self.failures,
            "instances": self.instances,
            "largest": self.largest,
        }

    @classmethod
    def from_item(cls, place: str, item: Mapping[str, int]) -> "Pause":
        """From its row."""
        return cls(place, item["until"], item["since"], item["failures"], item["instances"], item["largest"])

    def is_forgotten(self, now: float) -> bool:
        """Whether it is so long over that it counts no more."""
        return self.until + FORGOTTEN_SECONDS < now

    def concerns(self, taken: Mapping[str, int]) -> bool:
        """Whether it holds for who takes this."""
        return taken.get(self.place, 0) >= self.instances

    def tried_again(self, now: float) -> "Pause":
        """Somebody is launched there: the others wait for what comes of it, or as long as after a refusal."""
        return replace(self, until=int(now) + backoff_seconds(self.place, self.failures))


Pauses = Mapping[str, Pause]
"""Place -> its pause."""


def places(job: Job, slots: Slots, policy: Policy) -> dict[str, int]:
    """Where a job takes how many instances. In a pool of any type, lack of one type is no lack of another."""
    (kind,) = kinds(job, (slots,), policy) or (None,)
    return {f"{pool}/{kind}" if kind else pool: count for pool, count in slots.items()}


def kinds(job: Job, alternatives: Sequence[Slots], policy: Policy) -> tuple[str, ...]:
    """The instance types that alternatives of a job ask for; none where pools have types, which say it."""
    if all(pool.instance_type for pool in policy.pools):
        return ()
    return tuple(_types(job, sum(need.values())) for need in alternatives)


def after_refusal(known: Pauses, taken: Mapping[str, int], asked: float, now: float) -> tuple[Pause, ...]:
    """The pause that a refusal leads to; none where several pools are concerned: any of them may be to blame.

    :param asked: when the refused launch was asked for. What was asked before the last refusal was known is no news:
        jobs that were launched together count as one failure.
    """
    if len(taken) != 1:
        return ()
    ((place, instances),) = taken.items()
    before = known.get(place)
    if before is None or before.is_forgotten(now):
        before, failures = Pause(place, until=0, since=0, instances=instances, largest=instances), 1
    else:
        failures = before.failures + (asked > before.since)
    fewest, most = min(before.instances, instances), max(before.largest, instances)
    paused = Pause(place, 0, int(now), failures, fewest, most).tried_again(now)
    return (replace(paused, until=max(before.until, paused.until)),)


def tried_again(known: Pauses, taken: Mapping[str, int], now: float) -> tuple[Pause, ...]:
    """The pauses of the places where a job is launched that they hold for, as they are then."""
    return tuple(pause.tried_again(now) for pause in known.values() if pause.concerns(taken))


def after_end(known: Pauses, taken: Mapping[str, int], now: float) -> tuple[Pause, ...]:
    """The pauses of the places where a job has given its instances back: somebody may try at once to get them."""
    return tuple(
        replace(pause, until=int(now)) for pause in known.values() if pause.place in taken and pause.until > now
    )


def after_success(known: Pauses, taken: Mapping[str, int], came: float) -> list[tuple[Pause, Pause | None]]:
    """The pauses that a job disproves which got its instances then, each with what is left of it.

    Where more instances were refused than it got, those who ask for more are still doubted.
    """
    found = [pause for pause in known.values() if pause.concerns(taken) and pause.since < came]
    return [
        (pause, replace(pause, instances=got + 1) if (got := taken[pause.place]) < pause.largest else None)
        for pause in found
    ]


def _types(job: Job, count: int) -> str:
    """The instance types of the first alternative with so many instances."""
    alternative = next((choice for choice in job.demand if sum(choice.values()) == count), job.demand[0])
    return "+".join(sorted(alternative))
