"""``smq simulate``: simulate a trace with the queue's own planner, on this machine.

The planner and the simulator need a newer Python than the client. Therefore both are imported only when this command is
used. The command's options are read from the simulator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import raw, width
from sagemaker_queue.cli.parser import Argument, Command, GroupedOption, command
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.workflows.settings_advice import require_python


class Simulate(Command):
    """The command ``smq simulate``, with the simulator's options."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's parameters, adding the simulator's on the first call."""
        if not any(isinstance(parameter, Argument) for parameter in self.params):
            # A completion (resilient_parsing) shows no error if this Python is too old.
            with suppress(InvalidOption) if ctx.resilient_parsing else nullcontext():
                self.params[:0] = _parameters()
        return super().get_params(ctx)


@command(
    "simulate",
    cls=Simulate,
    help="simulate a trace of jobs with the queue's planner",
    description="Run the jobs of a trace through the queue's own planner, and print waiting times, preemptions and "
    "lost work. No queue and no account are needed. A trace is a CSV file, which may be compressed "
    "(.gz), with the columns job_id, submit_s, duration_s and gpus, and optionally group (the project), "
    "user, priority, max_runtime_s and interactive; smq history --csv writes a trace. With --advise, "
    "several settings of the policy are tried, within a time limit, and the lines that reduce the wait "
    "are printed.",
    examples=[
        "smq simulate trace.csv --capacity 16",
        "smq simulate trace.csv --policy policy.yaml --compare other.yaml",
        "smq simulate trace.csv --policy policy.yaml --html page.html",
        "smq simulate history.csv --policy policy.yaml --map-project old=new",
        "smq simulate history.csv --policy policy.yaml --advise",
    ],
)
def simulate(**values: Any) -> int:
    """Run the simulation, and print its results."""
    from job_queue.simulation.command import simulate as run  # noqa: PLC0415
    from job_queue.simulation.options import SimulationOptions  # noqa: PLC0415

    given = {name: value for name, value in values.items() if value is not None}
    return run(SimulationOptions(**{**given, "trace": Path(values["trace"])}), raw(sys.stderr), width())


def _parameters() -> list[click.Parameter]:
    """Return the simulator's options as click parameters. Raises InvalidOption if this Python is too old."""
    require_python("smq simulate")
    from job_queue.simulation.options import options  # noqa: PLC0415

    trace = Argument(["trace"], metavar="TRACE", shell_complete=files, help="a CSV file, which may be compressed (.gz)")
    found: list[click.Parameter] = [trace]
    for name, option in options().items():
        names = [option.flag(name), name]
        if option.read is None:
            found.append(GroupedOption(names, is_flag=True, help=option.help))
        else:
            default = f" ({option.default})" if option.default else ""
            reads = click.types.FuncParamType(_checked(option.read))
            found.append(
                GroupedOption(
                    names, type=reads, metavar=option.metavar, multiple=option.many, help=option.help + default
                )
            )
    return found


def _checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of option values that turns ValueError into click's error."""

    def check(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return check
