"""Type the tutorials of docs/start on a terminal, and write their outputs: python -m tools.tutorials [PAGE ...].

Each page is typed from beginning to end, on a local cloud that the page itself starts. For the page about a queue on
AWS, a local cloud replaces the account, and the user has only the rights of examples/iam/user.json.
A page keeps its output if the new one is similar, so that times and amounts change only together with words.
"""

import os
import re
import shutil
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte

from local_cloud.aws.stack import ACCOUNT, LocalCloud
from tests.client.terminal import Terminal
from tests.waiting import PATIENCE
from tools.page_outputs import Step, steps, with_outputs

ROOT = Path(__file__).parents[1]
ON_A_LAPTOP = tuple(ROOT / "docs/start" / name for name in ("first-job.md", "survive-preemption.md", "two-teams.md"))
ON_AWS = ROOT / "docs/start/first-job-on-aws.md"
PAGES = (*ON_A_LAPTOP, ON_AWS)

# Commands that are not typed as they stand: the text that is typed instead, and the reason.
STAND_INS = {
    "make demo": (":", "tests/system/test_guide.py types it in a fresh checkout"),
    ".venv/bin/python": (sys.executable, "the same environment, used from another folder"),
}

BUCKET = f"ml-training-{ACCOUNT}"
PROVISIONING = 20.0  # seconds until a job on "AWS" gets its instances
_WIDTH, _HEIGHT = 100, 500
_UNWRAPPED = 400  # columns; enough for every line, since a terminal would break lines within words
# The prompt of each shell reveals the status of the last command. Line editing would add control codes.
_PROMPT = re.compile(rb"\x1e(\d+)\x1e\Z")
_STARTUP = "PS1=$'\\x1e$?\\x1e' PS2=''\nset +o emacs\nunset HISTFILE PROMPT_COMMAND\nstty -echo\n"
_QUESTION = re.compile(rb"\[y/N\]:? ?\Z")


class Reader:
    """A simulated reader, who types the steps of a page on a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._wait_for_prompt(0)

    def does(self, step: Step) -> str:
        """Carry out one step and return the output of its commands. Raise AssertionError if a command fails."""
        if step.file:
            return self._run(f"cat > {step.file} <<'END OF FILE'\n{step.text}\nEND OF FILE", Step(step.text))
        printed = [self._run(_typed(command), step) for command in step.commands]
        return "\n".join(text for text in printed if text)

    def _run(self, command: str, step: Step) -> str:
        deadline = time.monotonic() + PATIENCE
        while True:
            output, status = self._once(command, step.shown.interrupt if step.shown else "")
            expected = step.shown.exit if step.shown else 0
            if command == "exit" or (step.shown and step.shown.interrupt):
                break  # ``exit`` has the status of the last command; an interrupted command may have any status
            assert status == expected, f"{command}\nended with {status}:\n{output}"
            if not step.shown or re.search(step.shown.repeat, re.sub(r"\s+", " ", output)):
                break
            assert time.monotonic() < deadline, f"{command}\nnever printed {step.shown.repeat}:\n{output}"
        return output

    def _once(self, command: str, interrupt: str) -> tuple[str, int]:
        begin = len(self._terminal.written)
        self._terminal.press(f"{command}\n")
        if interrupt:
            self._terminal.wait(lambda: interrupt.encode() in self._terminal.written[begin:])
            self._terminal.press("\x03")
        written = self._wait_for_prompt(begin)
        prompt = _PROMPT.search(written)
        assert prompt
        return rendered(written[: prompt.start()]), int(prompt[1])

    def _wait_for_prompt(self, begin: int) -> bytes:
        """Answer yes to each question until the shell shows its prompt; return the output since `begin`."""
        answers: list[tuple[int, bytes]] = []

        def waits() -> bool:
            written = self._terminal.written
            asked = answers[-1][0] if answers else begin
            if _QUESTION.search(written[asked:]):
                answers.append((len(written), b"y\r\n"))
                self._terminal.press("y\n")
            return bool(_PROMPT.search(written[begin:]))

        self._terminal.wait(waits)
        written = self._terminal.written[begin:]
        for place, answer in reversed(answers):  # insert the answers, since the terminal echoes no input
            written = written[: place - begin] + answer + written[place - begin :]
        return written


def _typed(command: str) -> str:
    """Return the text to type for a command of a page."""
    for text, (instead, _) in STAND_INS.items():
        command = re.sub(rf"^{re.escape(text)}(?=\s|$)", instead.replace("\\", r"\\"), command)
    return command


def rendered(written: bytes) -> str:
    """Return the lines that a terminal shows in the end, after all progress bars and control codes."""
    screen = pyte.Screen(_UNWRAPPED, _HEIGHT)
    pyte.ByteStream(screen).feed(written)
    return "\n".join(row.rstrip() for row in screen.display).strip("\n")


def copy_checkout(target: Path) -> Path:
    """Copy the repository as it is, without the files that commands make in it, and return the folder."""
    made = (".git", ".venv*", ".aws-sam", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
    return Path(shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*made)))


@contextmanager
def reader(home: Path, folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Reader]:
    """Open a shell in a folder, with an empty home."""
    home.mkdir()
    (home / ".bashrc").write_text(_STARTUP)
    command = ["sh", "-c", 'cd "$0" && exec bash -i', str(folder)]
    with Terminal(command, _WIDTH, _HEIGHT, {"HOME": str(home), **(environment or {})}) as terminal:
        yield Reader(terminal)


def outputs(page: Path, folder: Path) -> list[str]:
    """Type all steps of a page in an empty folder, and return the output of each."""
    if page == ON_AWS:
        return _outputs_on_aws(page, folder)
    checkout = folder / "sagemaker-queue"
    checkout.mkdir()
    with reader(folder / "home", checkout) as person:
        return [person.does(step) for step in steps(page.read_text())]


def _outputs_on_aws(page: Path, folder: Path) -> list[str]:
    """Type all steps of the page about AWS. In the outputs, an account's names replace those of the local cloud."""
    checkout = copy_checkout(folder / "sagemaker-queue")
    venv.create(folder / "environment", with_pip=True)
    with LocalCloud(slots=2, startup_delay=PROVISIONING) as cloud:
        variables = cloud.environment() | _ordinary_user(cloud)
        settings = {name: variables.pop(f"SAGEMAKER_QUEUE_{name.upper()}") for name in ("url", "role", "image")}
        variables.pop("SAGEMAKER_QUEUE_INSTANCE_TYPE")
        settings |= {"bucket": BUCKET, "instance_type": "ml.p5.48xlarge"}
        (checkout / "queue.toml").write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))
        variables["PATH"] = os.pathsep.join([str(folder / "environment/bin"), os.environ["PATH"]])
        with reader(folder / "home", checkout, variables) as person:
            printed = [person.does(step) for step in steps(page.read_text())]
        return [_as_on_aws(text, settings["url"], folder / "home") for text in printed]


def _ordinary_user(cloud: LocalCloud) -> dict[str, str]:
    """Give the user ann and the jobs the rights of examples/iam, and return ann's credentials as variables."""
    cloud.client("s3").create_bucket(Bucket=BUCKET)
    api = cloud.queue_url.split("/restapis/")[1].partition("/")[0]
    names = {"API_ID": api, "BUCKET": BUCKET, "PUBLISHED": f"published-{BUCKET}"}
    policies = {}
    for policy in ("user", "training"):
        policies[policy] = (ROOT / "examples/iam" / f"{policy}.json").read_text()
        for name, value in names.items():
            policies[policy] = policies[policy].replace(name, value)
    iam = cloud.client("iam")
    role = cloud.role.rpartition("/")[2]
    iam.put_role_policy(RoleName=role, PolicyName="training", PolicyDocument=policies["training"])
    iam.create_user(UserName="ann")
    iam.put_user_policy(UserName="ann", PolicyName="user", PolicyDocument=policies["user"])
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


def _as_on_aws(text: str, url: str, home: Path) -> str:
    """Return an output with names of an AWS account in place of those of the local cloud."""
    host = "a1b2c3d4e5-vpce-0123456789abcdef0.execute-api.us-east-1.amazonaws.com"
    names = (
        (re.escape(url), f"https://{host}/prod"),
        (re.escape(str(home)), "/home/ann"),
        (r"127\.0\.0\.1 is 127\.0\.0\.1", f"{host} is 10.20.0.17"),
        (r"127\.0\.0\.1, port \d+", f"{host}, port 443"),
        (r"role/sagemaker-training", "role/training"),
        (r"/none:1", "/pytorch:2.8"),
        (ACCOUNT, "123456789012"),
    )
    for pattern, instead in names:
        text = re.sub(pattern, instead, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def main() -> None:
    """Write the outputs into the pages that the command line names, or into all."""
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(with_outputs(page.read_text(), outputs(page, Path(folder))))
            print(f"{os.path.relpath(page)} has its outputs")


if __name__ == "__main__":
    main()
