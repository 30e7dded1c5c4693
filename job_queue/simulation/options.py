"""The options of a simulation, defined once for `python -m job_queue.simulation` and `smq simulate`."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

Runtimes = Literal["none", "max", "oracle", "predicted"]
Orders = Literal["submission", "shortest"]
DAY = 24 * 3600


class OptionError(ValueError):
    """An error because the value of an option is invalid. The message names the valid values."""


def _amount(text: str) -> float:
    """Read a number that is 0 or more, such as a number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e12:
        raise OptionError(f"must be a number from 0, not {text!r}")
    return value


def _at_least_one(text: str) -> int:
    """Read a whole number from 1."""
    if not text.isdecimal() or not 1 <= len(text) <= 9 or int(text) == 0:
        raise OptionError(f"must be a whole number from 1, not {text!r}")
    return int(text)


def _part(text: str) -> float:
    """Read a number above 0 and at most 1."""
    value = _amount(text)
    if not 0 < value <= 1:
        raise OptionError(f"must be above 0 and at most 1, not {text!r}")
    return value


def _seed(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"must be a whole number, not {text!r}") from None


def _amount_or_never(text: str) -> float | None:
    """Read seconds. Return None for the word "never"."""
    return None if text == "never" else _amount(text)


def _parts(text: str) -> tuple[float, ...]:
    """Read percentages, the highest priority first. Return an empty tuple for the word "trace"."""
    values = tuple(_amount(value) for value in text.split(",")) if text != "trace" else ()
    if values and not sum(values):
        raise OptionError(f"must not be nothing but zeros: {text!r}")
    return values


def read_renaming(text: str) -> tuple[str, str]:
    """Return the two names of a project in OLD=NEW."""
    old, is_given, new = text.rpartition("=")
    if not (old and is_given and new):
        raise OptionError(f"must be OLD=NEW, two names of projects, not {text!r}")
    return old, new


def read_minutes(text: str) -> float:
    """Return a number of minutes above 0 and at most a day."""
    value = _amount(text)
    if not 0 < value <= 24 * 60:
        raise OptionError(f"must be minutes above 0, at most a day, not {text!r}")
    return value


MAP_PROJECT = (
    "count the jobs of project OLD for project NEW, which the policy has; (none) stands for jobs without a project; "
    "may be repeated"
)
EXCLUDE_PROJECT = "leave out the jobs of a project, such as one that the policy no longer has; may be repeated"


def _one_of(words: Any) -> Callable[[str], str]:
    """Return a reader that accepts only the words of a Literal."""

    def read(text: str) -> str:
        if text not in get_args(words):
            raise OptionError(f"must be {' or '.join(get_args(words))}, not {text!r}")
        return text

    return read


@dataclass(frozen=True, slots=True)
class SimulationOption:
    """The definition of an option."""

    read: Callable[[str], Any] | None  # reads and checks the text of a value; None: the option is a flag
    metavar: str | None
    help: str
    default: str | None = None  # as it would be written on the command line
    many: bool = False

    def flag(self, field_name: str) -> str:
        """Return the option's name on the command line."""
        return "--" + field_name.replace("_", "-")


def _option(
    read: Callable[[str], Any] | None, metavar: str | None, help: str, default: str | None = None, **more: Any
) -> Any:
    value: Any = read(default) if read and default is not None else () if more.get("many") else None if read else False
    return field(default=value, metadata={"option": SimulationOption(read, metavar, help, default, **more)})


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The options of a simulation run."""

    trace: Path
    policy: Path | None = _option(Path, "FILE", "the policy; without this option there is one pool")
    compare: tuple[Path, ...] = _option(Path, "FILE", "another policy to compare; may be repeated", many=True)
    capacity: int | None = _option(_at_least_one, "N", "instances of the first pool")
    load: float = _option(
        _part, "PART", "without --capacity and --policy: choose the capacity so that this part of it is busy", "0.9"
    )
    groups: bool = _option(
        None, None, "without a policy: make each group a project, with a quota in proportion to its work"
    )
    gpus_per_instance: int = _option(
        _at_least_one, "N", "GPUs of an instance; a job takes whole instances unless they are shared", "8"
    )
    shared: bool = _option(
        None, None, "also simulate each policy with shared instances for jobs that need a part of an instance"
    )
    map_project: tuple[tuple[str, str], ...] = _option(read_renaming, "OLD=NEW", MAP_PROJECT, many=True)
    exclude_project: tuple[str, ...] = _option(str, "NAME", EXCLUDE_PROJECT, many=True)
    priorities: tuple[float, ...] | None = _option(
        _parts,
        "A,B,..",
        "draw priorities: percent of the jobs with the highest priority, the next, ..; trace: those of the trace "
        "(those of the trace if it has any, else 10,60,30)",
    )
    order: Orders | None = _option(
        _one_of(Orders),
        "WHO",
        "the order of jobs with one priority, instead of that of the policies: submission or shortest",
    )
    runtimes: Runtimes = _option(
        _one_of(Runtimes),
        "WHAT",
        "the queue's knowledge of runtimes: none, MaxRuntime (max), predictions from finished jobs (predicted), or the "
        "actual runtimes (oracle)",
        "predicted",
    )
    max_factor: float = _option(
        _amount,
        "X",
        "for --runtimes max: the MaxRuntime of a job without one in the trace, as a multiple of its duration",
        "1.5",
    )
    provisioning: float = _option(_amount, "S", "seconds from the launch of a job to its training", "180")
    stopping: float = _option(_amount, "S", "seconds from the stop of a job until its instances are free", "120")
    checkpoint_every: float | None = _option(
        _amount_or_never,
        "S",
        "seconds of training between checkpoints; never: a preempted job starts from the beginning",
        "1800",
    )
    longest: float | None = _option(_amount_or_never, "S", "seconds at which durations are cut", str(2 * DAY))
    seed: int = _option(_seed, "N", "seed of drawn priorities", "0")
    advise: bool = _option(
        None,
        None,
        "simulate the trace under several settings of the policy, and print the lines of a policy that reduce the wait",
    )
    minutes: float = _option(read_minutes, "N", "with --advise: the time for all simulations", "5")
    json: bool = _option(None, None, "print JSON for programs")
    html: Path | None = _option(Path, "FILE", "write an HTML page")


def options() -> dict[str, SimulationOption]:
    """Return the options by field name."""
    return {each.name: each.metadata["option"] for each in fields(SimulationOptions) if "option" in each.metadata}


def parse_options(arguments: Sequence[str] | None, prog: str) -> SimulationOptions:
    """Parse a command line. If the command line is wrong, print an error and exit the process."""
    parser = argparse.ArgumentParser(
        prog=prog, description="Simulate the queue on the jobs of a trace, and print the results."
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a CSV file, which may be compressed (.gz)")
    for name, option in options().items():
        if option.read is None:
            parser.add_argument(option.flag(name), action="store_true", help=option.help)
            continue
        default = f" ({option.default})" if option.default else ""
        parser.add_argument(
            option.flag(name),
            type=_for_argparse(option.read),
            metavar=option.metavar,
            action="append" if option.many else "store",
            default=[] if option.many else argparse.SUPPRESS,
            help=(option.help + default).replace("%", "%%"),
        )
    values = vars(parser.parse_args(arguments))
    many = {name: tuple(it) for name, it in values.items() if isinstance(it, list)}
    return SimulationOptions(**{**values, **many})


def _for_argparse(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        try:
            return read(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked
