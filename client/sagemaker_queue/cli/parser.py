"""Click commands with extensions for ``smq``.

Commands have examples below their help. Arguments have help, like options. Options can exclude one another. The
options that choose the queue are accepted before and after the name of every command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    from sagemaker_queue.queue.client import QueueClient

    P = ParamSpec("P")

T = TypeVar("T")
Decorator = Callable[[Callable[..., int]], Callable[..., int]]


@dataclass
class ConnectionOptions:
    """The options --url and --profile, which name a queue."""

    url: str | None = None
    profile: str | None = None

    def queue(self, **settings: Any) -> QueueClient:
        """Return a client of the named or configured queue. Raises ConfigError if no queue is named or configured."""
        from sagemaker_queue.queue.client import QueueClient  # noqa: PLC0415  # boto3: slow to import

        return QueueClient(url=self.url, profile=self.profile, **settings)


def connection(context: click.Context | None = None) -> ConnectionOptions:
    """Return the connection options in the context of a command (default: of the running command)."""
    return (context or click.get_current_context()).ensure_object(ConnectionOptions)


def with_queue(command: Callable[Concatenate[QueueClient, P], int]) -> Callable[P, int]:
    """Decorate a command so that its first argument is a client of the queue."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        return command(connection().queue(), *args, **kwargs)

    return run


class Argument(click.Argument):
    """An argument with help.

    ``metavar`` is the argument's name in the help; ``usage`` is its text in the usage line.
    """

    def __init__(self, declarations: Sequence[str], *, help: str, usage: str | None = None, **attributes: Any) -> None:
        super().__init__(declarations, **attributes)
        self.help = help
        self.usage = usage

    def make_metavar(self, _context: click.Context | None = None) -> str:
        """Return the argument's text in the command's usage."""
        name = self.metavar or (self.name or "").upper()
        if self.usage:
            return self.usage
        return f"[{name} ...]" if self.nargs < 0 else name if self.required else f"[{name}]"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the argument's row in the help."""
        return self.metavar or self.make_metavar(), self.help


class GroupedOption(click.Option):
    """An option of ``smq``.

    A command line may have only one of the options with the same ``exclusive_group``. ``section`` is the heading above
    the option in the help.
    """

    def __init__(
        self, *declarations: Any, exclusive_group: str | None = None, section: str = "options", **attributes: Any
    ) -> None:
        super().__init__(*declarations, **attributes)
        self.exclusive_group = exclusive_group
        self.section = section

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> Any:
        """Raise UsageError if another option of the same exclusive group is given."""
        if self.exclusive_group and self.name in opts and not ctx.resilient_parsing:
            other: GroupedOption = ctx.meta.setdefault(f"{__name__}.{self.exclusive_group}", self)
            if other is not self:
                raise click.UsageError(f"{self.opts[-1]} cannot be given together with {other.opts[-1]}", ctx)
        return super().handle_parse_result(ctx, opts, args)


def option(*names: str, **attributes: Any) -> Decorator:
    """Add an option to a command."""
    return click.option(*names, cls=GroupedOption, **attributes)


def flag(*names: str, **attributes: Any) -> Decorator:
    """Add an option without a value to a command."""
    return click.option(*names, cls=GroupedOption, is_flag=True, **attributes)


def argument(name: str, **attributes: Any) -> Decorator:
    """Add an argument to a command."""
    return click.argument(name, cls=Argument, **attributes)


def json_flag(help: str = "print JSON", **attributes: Any) -> Decorator:
    """Add ``--json`` to a command, as the parameter ``as_json``."""
    return flag("--json", "as_json", help=help, **attributes)


def bundled(
    name: str, make: Callable[..., Any], *parameters: Decorator, names: Iterable[str] | None = None
) -> Decorator:
    """Add parameters to a command, and pass their values to the command's function as one argument ``name``.

    ``make`` is called with the parameters' values as keywords, and its result is the argument. ``names`` are the
    keywords (default: the fields of ``make``, which must then be a dataclass).
    """
    gathered_names = [field.name for field in fields(make)] if names is None else list(names)  # type: ignore[arg-type]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def run(**values: Any) -> int:
            gathered = make(**{field: values.pop(field) for field in gathered_names})
            return command(**{name: gathered}, **values)

        decorated: Callable[..., int] = run
        for parameter in reversed(parameters):
            decorated = parameter(decorated)
        return decorated

    return decorate


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser of option values that turns InvalidOption into BadParameter, so that click names the option."""

    def check(text: str) -> T:
        try:
            return read(text)
        except InvalidOption as error:
            raise click.BadParameter(str(error)) from error

    return check


class Command(click.Command):
    """A command with examples; ``usage`` replaces the usage that click derives from its parameters."""

    def __init__(self, *args: Any, examples: Iterable[str] = (), usage: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)
        self.usage = usage
        self.params += _queue_options()

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage after the command's name."""
        return [self.usage] if self.usage else super().collect_usage_pieces(ctx)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usage line."""
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), prefix="usage: ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments and options in their sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading = "arguments" if isinstance(parameter, click.Argument) else getattr(parameter, "section", "options")
            record = parameter.get_help_record(ctx)
            sections.setdefault(heading, []).extend([record] if record else [])
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on its line."""
        with formatter.section("examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))


class Group(Command, click.Group):
    """A command with subcommands, listed in the order of their addition."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, no_args_is_help=False, **attributes)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help if there are no arguments and the group has no function of its own."""
        if not args and not ctx.resilient_parsing and not self.invoke_without_command:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a similar command if there is no command of that name."""
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {name!r}.{did_you_mean(name, self.commands)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and a line for each subcommand."""
        super().format_options(ctx, formatter)
        with formatter.section("commands"):
            formatter.write_dl([(name, command.short_help or "") for name, command in self.commands.items()])

    def subcommand(self, name: str, **attributes: Any) -> Callable[[Callable[..., int]], Command]:
        """Return a decorator that makes a function a subcommand. ``attributes`` are passed to ``command()``."""

        def decorate(function: Callable[..., int]) -> Command:
            made = command(name, **attributes)(function)
            self.add_command(made)
            return made

        return decorate


def command(
    name: str, *, help: str, description: str, cls: type[Command] = Command, **attributes: Any
) -> Callable[[Callable[..., int]], Command]:
    """Return a decorator that makes a function a command.

    ``help`` is the text in lists of commands; ``description`` is the text of the command's --help.
    """
    return click.command(name, cls=cls, short_help=help, help=description, **attributes)


def group(name: str, *, help: str, description: str, examples: Iterable[str]) -> Group:
    """Return a command with subcommands."""
    return Group(name, short_help=help, help=description, examples=examples)


def command_with_subcommands(
    name: str, *, help: str, description: str, **attributes: Any
) -> Callable[[Callable[..., int]], Group]:
    """Return a decorator that makes a function a command to which subcommands can be added.

    The function runs only if no subcommand is given.
    """

    def decorate(function: Callable[..., int]) -> Group:
        @wraps(function)
        def run(**values: Any) -> int:
            return 0 if click.get_current_context().invoked_subcommand else function(**values)

        return click.command(
            name,
            cls=Group,
            invoke_without_command=True,
            short_help=help,
            help=description,
            usage="[OPTIONS] [COMMAND [ARGS]...]",
            **attributes,
        )(run)

    return decorate


def _queue_options() -> list[click.Parameter]:
    return [
        GroupedOption(
            ["-c", "--profile"],
            metavar="NAME",
            help="the profile of the queue to use",
            expose_value=False,
            callback=_store_queue_option,
            section=QUEUE_SECTION,
        ),
        GroupedOption(
            ["--url"],
            metavar="URL",
            help="the address of the queue to use, up to and including the stage",
            expose_value=False,
            callback=_store_queue_option,
            section=QUEUE_SECTION,
        ),
    ]


QUEUE_SECTION = "choice of the queue"


def _store_queue_option(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    options = connection(context)
    if value is not None:
        setattr(options, str(parameter.name), value)
