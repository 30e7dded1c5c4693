"""Make the pictures in docs/pictures/terminal: the output of smq on a light and on a dark terminal.

    python -m local_cloud exec --slots 5 -- python -m tools.pictures

Three users submit jobs to the local cloud. Each command is run on its own terminal. The commands begin when
every waiting job has an expected start, which takes about a minute. Times differ between runs.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

import boto3
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

from tests.client.terminal import Terminal

TARGET = Path(__file__).parents[2] / "docs" / "pictures" / "terminal"
SMQ = [sys.executable, "-m", "sagemaker_queue"]
COLUMNS = 100
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
JOBS = (  # user, name, project, priority, instances, longest runtime
    ("ann", "resnet-50", "vision", 0, 2, "4h"),
    ("bob", "tokenizer", "language", 2, 1, "90m"),
    ("bob", "llm-pretrain", "language", 5, 1, "12h"),
    ("eve", "segment-anything", "vision", 1, 1, "3h"),
    ("ann", "detector", "vision", 0, 1, "2h"),
    ("bob", "nightly-evaluation", "language", 1, 1, "1h"),
)
SUBMIT = ("-t", "ml.p5.48xlarge")
SCREENS = {
    "ls": ["ls"],
    "status": ["status"],
    "top": ["top"],
    "show": ["show", "resnet-50"],
    "why": ["why", "resnet-50"],
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
        users = {name: credentials(name) for name in dict.fromkeys(user for user, *_ in JOBS)}
        typo = [*SUBMIT, "--project", "vision", "--name", "typo"]
        smq("submit", *typo, "--", "python", "train.py", "--lrr", "1")
        subprocess.run([*SMQ, "wait", "typo"], check=False)  # the job fails
        for user, name, project, priority, instances, longest in JOBS:
            of_job = ["--name", name, "--project", project, "--priority", str(priority), "-n", str(instances)]
            command = ["--max-run", longest, "--checkpoint", "--", "python", "train.py"]
            smq("submit", *SUBMIT, *of_job, *command, **users[user])
        while not all(job.get("expectedStart") for job in waiting()):
            time.sleep(5)
        for screen, command in SCREENS.items():
            draw(screen, command, users["ann"])


def credentials(name: str) -> dict[str, str]:
    """Create an IAM user with all rights, and return the variables with its key."""
    iam = boto3.client("iam")
    iam.create_user(UserName=name)
    everything = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
    iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=json.dumps(everything))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


def waiting() -> list[dict[str, object]]:
    """Return the waiting jobs, as `smq ls --json` describes them."""
    done = subprocess.run([*SMQ, "ls", "--waiting", "--json"], check=True, capture_output=True, text=True)
    jobs: list[dict[str, object]] = json.loads(done.stdout)
    return jobs


def smq(*arguments: str, **variables: str) -> None:
    """Run a command without a picture."""
    subprocess.run([*SMQ, *arguments], check=True, env={**os.environ, **variables})


def draw(name: str, command: list[str], variables: dict[str, str]) -> None:
    """Run a command on a terminal, and draw its screen in each theme."""
    rows = 24 if command[0] == "top" else 60
    with Terminal([*SMQ, *command], COLUMNS, rows, variables) as terminal:
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
            console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
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
