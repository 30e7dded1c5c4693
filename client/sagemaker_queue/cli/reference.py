"""``python -m sagemaker_queue.cli.reference docs/cli.md``: update the page about ``smq`` from its parser.

The text between two comments in each section is generated: usage, description, options and examples. Text below the
second comment is written by hand and kept. A new command gets a section; a removed command loses its section.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from sagemaker_queue.cli.entry import EXAMPLES, build_parser
from sagemaker_queue.cli.output import DONE, EXIT_CODES
from sagemaker_queue.cli.parser import QUEUE_SECTION, Argument, Command, Group, GroupedOption

_BEGIN, _END = "<!-- made by `make docs` from the parser -->", "<!-- the rest is written by hand -->"
_MADE = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n", re.DOTALL)
_HEADINGS = re.compile(r"^(?=## |### `smq )", re.MULTILINE)
_EXIT_HEADING = "## Exit codes"


def main() -> int:
    """Update the page that the first argument names."""
    page = Path(sys.argv[1])
    page.write_text(reference(page.read_text()))
    return DONE


def reference(page: str) -> str:
    """Return the page with its generated parts updated."""
    opening, *sections = _HEADINGS.split(page)
    written = {heading: body for heading, _, body in (section.partition("\n") for section in sections)}
    known = {heading_of(described.name): described for described in commands(build_parser())}
    is_command = [heading.lstrip("# ").startswith("`smq ") for heading in written]
    first = is_command.index(True) if True in is_command else len(is_command)
    others = [heading for heading in written if not heading.lstrip("# ").startswith("`smq ")]
    before = [heading for heading in list(written)[:first] if heading in others]
    after = [heading for heading in others if heading not in before]

    title, _, introduction = opening.partition("\n")
    parts = [_section(title, _overview(), introduction)]
    parts += [_section(heading, None, written[heading]) for heading in before]
    parts += [_section(heading, _about(described), written.get(heading, "")) for heading, described in known.items()]
    parts += [
        _section(heading, _exit_codes() if heading == _EXIT_HEADING else None, written[heading]) for heading in after
    ]
    return "\n\n".join(parts) + "\n"


class NamedCommand(NamedTuple):
    """A command of ``smq`` or a subcommand, with its full name such as ``policy apply``."""

    name: str
    command: Command

    @property
    def own_parameters(self) -> list[click.Parameter]:
        """Arguments and options of the command, without the options that choose the queue."""
        parameters = self.command.get_params(click.Context(self.command, help_option_names=[]))
        return [parameter for parameter in parameters if getattr(parameter, "section", None) != QUEUE_SECTION]


def commands(root: Group, path: str = "") -> Iterator[NamedCommand]:
    """Yield every command, each followed by its subcommands."""
    for name, command in root.commands.items():
        assert isinstance(command, Command)
        yield NamedCommand(f"{path}{name}", command)
        if isinstance(command, Group):
            yield from commands(command, f"{path}{name} ")


def heading_of(command: str) -> str:
    """Return the heading of the command's section."""
    return f"{'###' if ' ' in command else '##'} `smq {command}`"


def _section(heading: str, made: str | None, body: str) -> str:
    by_hand = _MADE.sub("", body).strip("\n")
    parts = [heading, *([f"{_BEGIN}\n{made}\n\n{_END}"] if made else []), *([by_hand] if by_hand else [])]
    return "\n\n".join(parts)


def _overview() -> str:
    rows = [
        (
            f"[`smq {described.name}`](#smq-{described.name.replace(' ', '-')})",
            _cell(described.command.short_help or ""),
        )
        for described in commands(build_parser())
    ]
    return f"\n{_code(EXAMPLES.splitlines())}\n\n{_table('command', rows)}"


def _about(described: NamedCommand) -> str:
    name, command = described
    arguments = [parameter for parameter in described.own_parameters if isinstance(parameter, Argument)]
    options = [parameter for parameter in described.own_parameters if isinstance(parameter, GroupedOption)]
    usage = ["smq", name, *(["[OPTIONS]"] if options else []), *(argument.make_metavar() for argument in arguments)]
    usage += [_subcommand(command)] if isinstance(command, Group) else []
    parts = [f"\n{_code([' '.join(usage)])}", _cell(command.help or "")]
    rows = [("`COMMAND`", "one of those below")] if isinstance(command, Group) else []
    rows += [(f"`{argument.metavar}`", _cell(argument.help)) for argument in arguments]
    rows += [(_names(option), _cell(option.help or "")) for option in options]
    parts += [_table("argument or option", rows)] if rows else []
    parts += [_code(list(command.examples))]
    return "\n\n".join(parts)


def _subcommand(group: Group) -> str:
    return "[COMMAND]" if group.invoke_without_command else "COMMAND"


def _exit_codes() -> str:
    return "\n" + _table("code", [(str(code), _cell(meaning)) for code, meaning in EXIT_CODES.items()])


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
