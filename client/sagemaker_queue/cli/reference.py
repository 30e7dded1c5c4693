"""``python -m sagemaker_queue.cli.reference docs/reference/cli``: update the pages about ``smq`` from its parser.

Each command has a page, with a section for each subcommand. The text above the comment ``_END`` is generated: usage,
description, options and examples. The text below that comment is written by hand and kept. Each command in GROUPS
gets a page; the page of a command that was removed from GROUPS is deleted. README.md lists the commands in groups.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from sagemaker_queue.cli.entry import EXAMPLES, build_parser
from sagemaker_queue.cli.output import DONE, EXIT_CODES
from sagemaker_queue.cli.parser import QUEUE_SECTION, Argument, Command, Group, GroupedOption
from sagemaker_queue.jobs.packaging.job_options import JOB_OPTIONS

INDEX = "README.md"
"""The name of the page that lists the commands."""


class CommandGroup(NamedTuple):
    """A heading of the index, the commands below the heading, and the audience of the commands' pages."""

    heading: str
    audience: str
    commands: tuple[str, ...]


GROUPS = (
    CommandGroup("Submit jobs", "researchers", ("submit", "resubmit", "plan", "sweep", "run", "proxy")),
    CommandGroup(
        "See and change jobs",
        "everybody",
        ("ls", "show", "events", "why", "set-priority", "hold", "release", "requeue", "cancel"),
    ),
    CommandGroup("Logs, results and shells", "researchers", ("logs", "wait", "get", "checkpoints", "shell")),
    CommandGroup("Watch", "everybody", ("top", "ui", "notify")),
    CommandGroup("Pools and policy", "operators", ("status", "policy", "drain", "undrain", "simulate")),
    CommandGroup("Usage", "everybody", ("history", "usage", "failures")),
    CommandGroup("Data and settings", "everybody", ("data", "config", "doctor", "completion")),
)

_BEGIN, _END = "<!-- made by `make docs` from the parser -->", "<!-- the rest is written by hand -->"
_MADE = re.compile(f".*?{re.escape(_END)}\n?", re.DOTALL)
_SUBCOMMANDS = re.compile(r"^(?=## `smq )", re.MULTILINE)
_SUBMIT_PAGE = "submit.md"


def main() -> int:
    """Update the pages in the folder that the first argument names."""
    folder = Path(sys.argv[1])
    written = {path.name: path.read_text() for path in folder.glob("*.md")}
    renewed = pages(written)
    for name in written.keys() - renewed.keys():
        (folder / name).unlink()
    for name, page in renewed.items():
        (folder / name).write_text(page)
    return DONE


def pages(written: Mapping[str, str]) -> dict[str, str]:
    """Return all pages by name with their generated parts updated; ``written`` are the present pages by name."""
    described = {one.name: one for one in commands(build_parser())}
    renewed = {INDEX: _page(_index(), written.get(INDEX, ""))}
    for group in GROUPS:
        for name in group.commands:
            page = written.get(page_of(name), "")
            sections = {part.partition("\n")[0]: part for part in _SUBCOMMANDS.split(page)[1:]}
            parts = [_page(_opening(described[name], group.audience), _SUBCOMMANDS.split(page)[0])]
            for other in described.values():
                if other.name.startswith(f"{name} "):
                    heading = heading_of(other.name)
                    parts.append(_page(f"{heading}\n\n{_BEGIN}\n{_about(other)}", sections.get(heading, "")))
            renewed[page_of(name)] = "\n".join(parts)
    return renewed


class NamedCommand(NamedTuple):
    """A command of ``smq`` or a subcommand, with its full name such as ``policy apply``."""

    name: str
    command: Command

    @property
    def own_parameters(self) -> list[click.Parameter]:
        """Arguments and options of the command, without the options that choose the queue."""
        parameters = self.command.get_params(click.Context(self.command, help_option_names=[]))
        return [parameter for parameter in parameters if getattr(parameter, "section", None) != QUEUE_SECTION]

    @property
    def own_options(self) -> list[GroupedOption]:
        """Options that the command's page lists. The options of a job are listed only on the page of ``submit``."""
        options = [parameter for parameter in self.own_parameters if isinstance(parameter, GroupedOption)]
        return [option for option in options if self.name == "submit" or not _is_job_option(option)]


def commands(root: Group, path: str = "") -> Iterator[NamedCommand]:
    """Yield every command, each followed by its subcommands."""
    for name, command in root.commands.items():
        assert isinstance(command, Command)
        yield NamedCommand(f"{path}{name}", command)
        if isinstance(command, Group):
            yield from commands(command, f"{path}{name} ")


def page_of(command: str) -> str:
    """Return the name of the page that describes a command or a subcommand."""
    return f"{command.partition(' ')[0]}.md"


def heading_of(command: str) -> str:
    """Return the heading of a subcommand's section."""
    return f"## `smq {command}`"


def _is_job_option(option: GroupedOption) -> bool:
    """Return whether the option is made from a row of JOB_OPTIONS.

    The name alone proves nothing, because another option may have it. So the flags and the help are compared too.
    """
    row = JOB_OPTIONS.get(option.name or "")
    return row is not None and (set(row.names), row.help) == (set(option.opts), option.help)


def _page(generated: str, existing: str) -> str:
    """Return a page or section: the text ``generated``, and below it the hand-written part of ``existing``."""
    by_hand = _MADE.sub("", existing, count=1).strip("\n") if _END in existing else ""
    return f"{generated}\n\n{_END}\n" + (f"\n{by_hand}\n" if by_hand else "")


def _opening(described: NamedCommand, audience: str) -> str:
    about = (described.command.short_help or "").partition(";")[0]
    header = (
        f"> **Reference** for {audience}. Look up."
        " Before you begin: [the client is installed](../../start/first-job-on-aws.md)."
    )
    return f"# smq {described.name}: {_cell(about)}\n\n{header}\n\n{_BEGIN}\n{_about(described)}"


def _index() -> str:
    described = {one.name: one for one in commands(build_parser())}
    parts = [
        "# smq: all commands",
        "> **Reference** for everybody. Look up."
        " Before you begin: [the client is installed](../../start/first-job-on-aws.md).",
        f"{_BEGIN}",
    ]
    for group in GROUPS:
        rows = [
            (_index_link(one.name), _cell(one.command.short_help or ""))
            for name in group.commands
            for one in described.values()
            if one.name == name or one.name.startswith(f"{name} ")
        ]
        parts += [f"## {group.heading}", _table("command", rows)]
    parts += ["## Examples", _code(EXAMPLES.splitlines())]
    parts += ["## Exit codes", _table("code", [(str(code), _cell(meaning)) for code, meaning in EXIT_CODES.items()])]
    return "\n\n".join(parts)


def _index_link(command: str) -> str:
    anchor = f"#smq-{command.replace(' ', '-')}" if " " in command else ""
    return f"[`smq {command}`]({page_of(command)}{anchor})"


def _about(described: NamedCommand) -> str:
    name, command = described
    arguments = [parameter for parameter in described.own_parameters if isinstance(parameter, Argument)]
    options = [parameter for parameter in described.own_parameters if isinstance(parameter, GroupedOption)]
    usage = ["smq", name, *(["[OPTIONS]"] if options else []), *(argument.make_metavar() for argument in arguments)]
    usage += [_subcommand(command)] if isinstance(command, Group) else []
    parts = [f"\n{_code([' '.join(usage)])}", _cell(command.help or "")]
    rows = [("`COMMAND`", "one of those below")] if isinstance(command, Group) else []
    rows += [(f"`{argument.metavar}`", _cell(argument.help)) for argument in arguments]
    rows += [(_names(option), _cell(option.help or "")) for option in described.own_options]
    parts += [_table("argument or option", rows)] if rows else []
    if len(described.own_options) < len(options):
        parts.append(f"The options that describe the job are those of [`smq submit`]({_SUBMIT_PAGE}).")
    parts += [f"Examples:\n\n{_code(list(command.examples))}"]
    return "\n\n".join(parts)


def _subcommand(group: Group) -> str:
    return "[COMMAND]" if group.invoke_without_command else "COMMAND"


def _names(option: GroupedOption) -> str:
    """Return the option's names as a user types them: `-o COLUMNS`, `--columns COLUMNS`."""
    value = "" if option.is_flag else f" {option.metavar or _choices(option) or (option.name or '').upper()}"
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))


def _choices(option: GroupedOption) -> str | None:
    return f"{{{','.join(option.type.choices)}}}" if isinstance(option.type, click.Choice) else None


def _cell(text: str) -> str:
    """Return the text on one line, with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_|<])", r"\\\1", " ".join(text.split()))


def _code(lines: list[str]) -> str:
    return "\n".join(f"    {line.strip()}" for line in lines)


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join([f"| {title} | |", "|---|---|", *(f"| {name} | {meaning} |" for name, meaning in rows)])


if __name__ == "__main__":
    sys.exit(main())
