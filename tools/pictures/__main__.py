"""The pictures in docs/pictures/terminal: the output of smq at two sizes, light and dark.

    python -m local_cloud exec --slots 5 -- python -m tools.pictures

Jobs are submitted to the local cloud, and each command is run on its own terminal. Times differ between runs.
"""

import os
import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

from tests.client.terminal import Terminal

TARGET = Path(__file__).parents[2] / "docs" / "pictures" / "terminal"
SMQ = [sys.executable, "-m", "sagemaker_queue"]
SIZES = (80, 120)
LIGHT = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [(36, 41, 47), (207, 34, 46), (17, 99, 41), (125, 78, 0), (9, 105, 218), (130, 80, 223), (27, 124, 131)]
    + [(110, 119, 129)],
)
THEMES = {"light": LIGHT, "dark": DIMMED_MONOKAI}
# rich's template without web fonts: a picture loads no other file.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px}}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>\
</clipPath></defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
JOBS = (  # name, project, priority, instances, other options
    ("resnet-50", "vision", 0, 2, ("--max-run", "4h")),
    ("tokenizer", "language", 0, 1, ("--max-run", "90m")),
    ("llm-pretrain", "language", 5, 2, ("--max-run", "1d")),
    ("segment-anything-large-ablation-03", "vision", 1, 2, ()),
    ("detector", "vision", 0, 1, ()),
    ("nightly-evaluation", "language", 0, 1, ()),
)
SUBMIT = ("-t", "ml.p5.48xlarge")
SCREENS = {
    "ls": ["ls"],
    "ls-wide": ["ls", "--wide"],
    "status": ["status"],
    "top": ["top"],
    "show": ["show", "resnet-50"],
    "why": ["why", "detector"],
    "plan": ["plan", *SUBMIT, "--project", "vision", "--priority", "9", "--", "python", "train.py"],
    "usage": ["usage"],
    "submit": ["submit", *SUBMIT, "--project", "vision", "--", "python", "train.py"],
}
TRAIN = """import sys, time
if "--lrr" in sys.argv:
    sys.exit("train.py: there is no option --lrr")
print("epoch 1: loss 2.31", flush=True)
time.sleep(3600)
"""


def main() -> None:
    """Submit the jobs, and make all pictures."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("train.py").write_text(TRAIN)
        smq("policy", "apply", "--yes", str(Path(__file__).parent / "policy.yaml"))
        typo = [*SUBMIT, "--project", "vision", "--name", "typo"]
        smq("submit", *typo, "--", "python", "train.py", "--lrr", "1")
        subprocess.run([*SMQ, "wait", "typo"], check=False)  # the job fails
        for name, project, priority, instances, options in JOBS:
            of_job = ["--name", name, "--project", project, "--priority", str(priority), "-n", str(instances)]
            smq("submit", *SUBMIT, *of_job, *options, "--", "python", "train.py")
        for columns in SIZES:
            for screen, command in SCREENS.items():
                draw(f"{screen}-{columns}", command, columns)


def smq(*arguments: str) -> None:
    """Run a command without a picture."""
    subprocess.run([*SMQ, *arguments], check=True)


def draw(name: str, command: list[str], columns: int) -> None:
    """Run a command on a terminal, and draw its screen in each theme."""
    with Terminal([*SMQ, *command], columns, 24 if command[0] == "top" else 60) as terminal:
        if command[0] == "top":
            terminal.shows("R:reverse")
            screen = text_of(terminal)
            terminal.press("q")
        terminal.end()
        if command[0] != "top":
            screen = text_of(terminal)
    typed = re.sub(r"\s+", " ", " ".join(["smq", *command]))
    for theme, colours in THEMES.items():
        with Path(os.devnull).open("w") as nowhere:
            console = Console(record=True, width=columns, file=nowhere, force_terminal=True, color_system="truecolor")
            console.print(Text(f"$ {typed}", style="bold"), screen, sep="\n", soft_wrap=True)
            drawn = console.export_svg(title="", theme=colours, code_format=SVG, unique_id="t", font_aspect_ratio=0.602)
        drawn = re.sub(r' clip-path="url\(#t-line-\d+\)"', "", drawn)
        (TARGET / f"{name}-{theme}.svg").write_text(re.sub(r"\s*\n\s*", "\n", drawn))


def text_of(terminal: Terminal) -> Text:
    """Return the text of the screen with its colours, without the empty lines at the end."""
    lines = [
        Text.assemble(*[("".join(cell.data for cell in cells), look) for look, cells in groupby(row, style)])
        for row in terminal.cells
    ]
    for line in lines:
        line.rstrip()
    while lines and not lines[-1]:
        lines.pop()
    return Text("\n").join(lines)


def style(cell: object) -> str:
    """Return rich's name of a cell's style."""
    words = [
        word for word in ("bold", "underline", "reverse") if getattr(cell, {"underline": "underscore"}.get(word, word))
    ]
    colours = {"brown": "yellow", "default": "", "brightblack": "bright_black"}
    for ground, prefix in (("fg", ""), ("bg", "on ")):
        colour = getattr(cell, ground)
        colour = colours.get(colour, f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else colour)
        if colour:
            words.append(prefix + colour)
    return " ".join(words)


if __name__ == "__main__":
    main()
