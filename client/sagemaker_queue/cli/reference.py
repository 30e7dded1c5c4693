"""``python -m sagemaker_queue.cli.reference docs/cli.md``: bring the page about ``smq`` up to date with its parser.

Between two comments of each section stands what the parser knows: usage, description, options, examples. It is made
anew; all that people wrote below it is kept. A command without a section gets one, one that is gone loses it.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sagemaker_queue.cli.entry import EXAMPLES, build_parser
from sagemaker_queue.cli.output import DONE, EXIT_CODES

_BEGIN, _END = "<!-- made by `make docs` from the parser -->", "<!-- the rest is written by hand -->"
_MADE = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n", re.DOTALL)
_HEADINGS = re.compile(r"^(?=## |### `smq )", re.MULTILINE)
_EXIT_HEADING = "## Exit codes"


def main() -> int:
    """Write the page that is named."""
    page = Path(sys.argv[1])
    page.write_text(reference(page.read_text()))
    return DONE


def reference(page: str) -> str:
    """Return the page with all that the parser knows as it is now."""
    opening, *sections = _HEADINGS.split(page)
    written = {heading: body for heading, _, body in (section.partition("\n") for section in sections)}
    known = {heading_of(one.name): one for one in commands(build_parser())}
    is_command = [heading.lstrip("# ").startswith("`smq ") for heading in written]
    place = is_command.index(True) if True in is_command else len(is_command)
    others = [heading for heading in written if not heading.lstrip("# ").startswith("`smq ")]
    before = [heading for heading in list(written)[:place] if heading in others]
    after = [heading for heading in others if heading not in before]

    title, _, introduction = opening.partition("\n")
    parts = [_section(title, _overview(), introduction)]
    parts += [_section(heading, None, written[heading]) for heading in before]
    parts += [_section(heading, _about(one), written.get(heading, "")) for heading, one in known.items()]
    parts += [
        _section(heading, _exit_codes() if heading == _EXIT_HEADING else None, written[heading]) for heading in after
    ]
    return "\n\n".join(parts) + "\n"


class Command(NamedTuple):
    """A command of ``smq``, or a command of one, as one types it."""

    name: str
    help: str
    parser: argparse.ArgumentParser


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Command]:
    """Yield every command of the parser, each followed by its own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                command = action.choices[choice.dest]
                yield Command(f"{path}{choice.dest}", choice.help or "", command)
                yield from commands(command, f"{path}{choice.dest} ")


def heading_of(command: str) -> str:
    """Return the heading of the command's section."""
    return f"{'###' if ' ' in command else '##'} `smq {command}`"


def _section(heading: str, made: str | None, body: str) -> str:
    by_hand = _MADE.sub("", body).strip("\n")
    parts = [heading, *([f"{_BEGIN}\n{made}\n\n{_END}"] if made else []), *([by_hand] if by_hand else [])]
    return "\n\n".join(parts)


def _overview() -> str:
    rows = [
        (f"[`smq {one.name}`](#smq-{one.name.replace(' ', '-')})", _cell(one.help)) for one in commands(build_parser())
    ]
    return f"\n{_code(EXAMPLES.splitlines())}\n\n{_table('command', rows)}"


def _about(command: Command) -> str:
    name, _, parser = command
    everywhere = set.intersection(*(set(one.parser._option_string_actions) for one in commands(build_parser())))
    actions = [
        action
        for action in parser._actions
        if not everywhere.intersection(action.option_strings) and action.help != argparse.SUPPRESS
    ]
    positionals = [_positional(action) for action in actions if not action.option_strings]
    options = ["[OPTIONS]"] if any(action.option_strings for action in actions) else []
    parts = [f"\n{_code([' '.join(['smq', name, *options, *positionals])])}", _cell(parser.description or "")]
    rows = [(_names(action), _meaning(action, parser)) for action in actions]
    parts += [_table("argument or option", rows)] if rows else []
    parts += [_code((parser.epilog or "").splitlines()[1:])]
    return "\n\n".join(parts)


def _exit_codes() -> str:
    return "\n" + _table("code", [(str(code), _cell(meaning)) for code, meaning in EXIT_CODES.items()])


def _positional(action: argparse.Action) -> str:
    name = _metavar(action)
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(str(action.nargs), name)


def _metavar(action: argparse.Action) -> str:
    if action.metavar:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else None
    return choices or action.dest.upper()


def _names(action: argparse.Action) -> str:
    """How one types it: `-o COLUMNS`, `--columns COLUMNS`."""
    if not action.option_strings:
        return f"`{_metavar(action)}`"
    value = "" if action.nargs == 0 else f" {_positional(action)}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return "one of those below"
    return _cell((action.help or "") % {**vars(action), "prog": parser.prog})


def _cell(text: str) -> str:
    """Text in which nothing means anything to Markdown."""
    return re.sub(r"([\\`*_|<])", r"\\\1", " ".join(text.split()))


def _code(lines: list[str]) -> str:
    return "\n".join(f"    {line.strip()}" for line in lines)


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join([f"| {title} | |", "|---|---|", *(f"| {name} | {meaning} |" for name, meaning in rows)])


if __name__ == "__main__":
    sys.exit(main())
