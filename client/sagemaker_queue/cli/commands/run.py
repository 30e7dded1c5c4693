"""``smq run`` and ``smq proxy``: send the training jobs of unchanged programs through the queue."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sagemaker_queue.cli.output import DONE, USAGE
from sagemaker_queue.cli.parser import argument, command, connection, flag, option
from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.config.queue_config import PROFILE_VARIABLE, URL_VARIABLE, find_config
from sagemaker_queue.workflows.signal_handlers import signal_handlers
from sagemaker_queue_startup import VARIABLE

if TYPE_CHECKING:
    from sagemaker_queue.integrations.proxy.server import Server

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # exit codes, as in a shell
ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL_SAGEMAKER"
PORT = 8762
_LACKS, _IDLE = "sagemaker-queue is not installed", "sagemaker-queue is installed, but was not started"
# A script for the program's Python. The script prints _LACKS or _IDLE, or nothing if sagemaker-queue was started.
_PROBE = f"""
import sys
if "sagemaker_queue_startup" not in sys.modules:
    from importlib.util import find_spec
    print("{_IDLE}" if find_spec("sagemaker_queue_startup") else "{_LACKS}")
"""
_LONGEST_PROBE_SECONDS = 20
_MOST_BYTES_OF_A_SHEBANG = 512


@command(
    "run",
    help="run a program whose training jobs go through the queue",
    description="Run COMMAND, unchanged, with " + VARIABLE + "=1 in its environment: every training job that a Python "
    "program creates with boto3, aioboto3 or a SageMaker SDK goes through the queue, under the credentials of the "
    "program. The same applies to programs that it starts. Each program needs sagemaker-queue in its own environment. "
    "The exit code is the command's.",
    examples=[
        "smq run -- python train_all.py",
        "smq run -- airflow standalone",
        "smq -c research run -- jupyter lab",
        "smq run -- aws sagemaker create-training-job --cli-input-json file://job.json   (AWS CLI 1)",
    ],
    usage="[-h] [--force] [--] COMMAND ...",
    context_settings={"allow_interspersed_args": False},
)
@flag("--force", help="run the program even if its Python lacks sagemaker-queue, so that its jobs bypass the queue")
@argument("command", metavar="COMMAND", nargs=-1, required=True, help="the program and its arguments")
def run(command: tuple[str, ...], force: bool) -> int:
    """Replace this process by the program where possible; otherwise run it and return its exit code."""
    options = connection()
    find_config(url=options.url, profile=options.profile)  # raises ConfigError if no queue is configured
    environment = {**os.environ, VARIABLE: "1"}
    if options.url:
        environment[URL_VARIABLE] = options.url
    elif options.profile:
        environment[PROFILE_VARIABLE] = options.profile
        environment.pop(URL_VARIABLE, None)  # the variable would override the profile
    program = shutil.which(command[0])
    if program is None:
        print(f"smq: there is no command {command[0]}", file=sys.stderr)
        return NOT_FOUND
    if not force and (obstacle := bypass_reason(command, program, environment)):
        print(f"smq: {obstacle} To run the program anyway: --force", file=sys.stderr)
        return USAGE
    return execute(program, command, environment)


@command(
    "proxy",
    help="serve SageMaker's API on this machine, for programs in any language whose training jobs go through the queue",
    description="Serve SageMaker's API at http://127.0.0.1:PORT until Ctrl-C: training jobs go through the queue, "
    "other requests to SageMaker. Use the proxy for programs that smq run cannot reach: the AWS CLI 2, Java, Go, Rust. "
    f"A program uses the proxy if {ENDPOINT_VARIABLE} has this address. Requests must be signed with one of your keys "
    "on this machine, and are made under that key. With COMMAND, run the command with the variable set, and end with "
    "it; the exit code is the command's.",
    examples=[
        "smq proxy",
        "smq proxy -- aws sagemaker create-training-job --cli-input-json file://job.json",
        "smq proxy -- java -jar trainer.jar",
        "smq -c research proxy --port 9000",
    ],
    usage="[-h] [--port PORT] [--no-preflight] [[--] COMMAND ...]",
    context_settings={"allow_interspersed_args": False},
)
@option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"port to listen on; 0 is any free port (default: {PORT}, and 0 with COMMAND)",
)
@flag(
    "--no-preflight",
    "preflight",
    flag_value=False,
    default=True,
    help="skip the checks that find jobs that are certain to fail",
)
@argument("command", metavar="COMMAND", nargs=-1, help="a program and its arguments")
def proxy(command: tuple[str, ...], port: int | None, preflight: bool) -> int:
    """Serve until Ctrl-C, or until the program has ended; return the exit code."""
    options = connection()
    config = find_config(url=options.url, profile=options.profile)
    program = shutil.which(command[0]) if command else None
    if command and program is None:
        print(f"smq: there is no command {command[0]}", file=sys.stderr)
        return NOT_FOUND
    from sagemaker_queue.integrations.proxy import gateway  # noqa: PLC0415  # boto3

    requested_port = port if port is not None else 0 if command else PORT
    try:
        server = gateway.proxy(config, requested_port, preflight=preflight)
    except OSError as error:
        raise ConfigError(
            f"Port {requested_port} cannot be used: {error.strerror}. --port 0 uses any free port."
        ) from error
    with server:
        return serve_beside(server, program, command) if program else serve(server)


def serve(server: Server) -> int:
    """Serve until Ctrl-C or SIGTERM."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with signal_handlers({signal.SIGTERM: end}):
        try:
            print("smq: the proxy is ready. In the environment of your program:", file=sys.stderr)
            print(f"export {ENDPOINT_VARIABLE}=http://{server.address}", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print("smq: the proxy has ended", file=sys.stderr)
    return DONE


def serve_beside(server: Server, program: str, command: tuple[str, ...]) -> int:
    """Serve until the program ends, and return the program's exit code.

    Forward SIGTERM and SIGHUP to the program; forward SIGINT only if there is no terminal.
    """
    threading.Thread(target=server.serve_forever, daemon=True).start()
    early_signals: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: object) -> None:
        if process is None:
            early_signals.append(number)
        else:
            process.send_signal(number)

    names = ("SIGTERM", "SIGHUP", "SIGINT")
    handlers: dict[int, Any] = {getattr(signal, name): forward for name in names if hasattr(signal, name)}
    if _has_terminal():
        handlers[signal.SIGINT] = lambda *_: None  # the terminal sends SIGINT to both processes
    with signal_handlers(handlers):
        try:
            process = subprocess.Popen([program, *command[1:]], env=environment_for(server.address, os.environ))
        except OSError as error:
            print(f"smq: {command[0]} cannot be executed: {error.strerror}", file=sys.stderr)
            return NOT_EXECUTABLE
        for number in early_signals:
            process.send_signal(number)
        code = process.wait()
    return code if code >= 0 else 128 - code  # as in a shell


def environment_for(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a program sends its SageMaker requests directly to this proxy."""
    # VARIABLE=0 switches off the hooks of this package: otherwise the hooks and the proxy would both add the queue's
    # jobs to SageMaker's lists of training jobs.
    changed = {**environment, ENDPOINT_VARIABLE: f"http://{address}", VARIABLE: "0"}
    if any(environment.get(name) for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")):
        direct = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
        changed["NO_PROXY"] = changed["no_proxy"] = ",".join(filter(None, (direct, "127.0.0.1")))
    return changed


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True


def execute(program: str, command: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Replace this process by the program, so that the program gets signals and the terminal directly.

    On Windows, run the program and return its exit code. Returns NOT_EXECUTABLE if the program cannot be executed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if os.name == "nt":
            return subprocess.run([program, *command[1:]], env=dict(environment), check=False).returncode
        # Restore the default of the signals that Python ignores, because the program inherits ignored signals.
        with signal_handlers(dict.fromkeys((signal.SIGPIPE, signal.SIGXFSZ), signal.SIG_DFL)):
            os.execve(program, list(command), dict(environment))  # noqa: S606  # running the user's program is the purpose
    except OSError as error:
        print(f"smq: {command[0]} cannot be executed: {error.strerror}", file=sys.stderr)
    return NOT_EXECUTABLE


def bypass_reason(command: tuple[str, ...], program: str, environment: Mapping[str, str]) -> str | None:
    """Return a reason why the program's training jobs would bypass the queue, and a remedy; None if none is found."""
    found = python_of(Path(program), command[1:])
    if found:
        python, *flags = found
        runs = f"{command[0]} runs in {' '.join(found)}"
        answer = _probe(python, flags, environment)
        if answer == _LACKS:
            return (
                f"{runs}, which has no sagemaker-queue, so its training jobs would bypass the queue. Install it "
                f"there from your checkout: {python} -m pip install CHECKOUT."
            )
        if answer == _IDLE:
            return (
                f"{runs}, which finds sagemaker-queue but does not start it, so its training jobs would bypass the "
                "queue: with -S, -I or -s, or where PYTHONPATH leads to the package, Python does not read its .pth "
                "file. Install it in the program's own environment, or have the program call "
                "sagemaker_queue.install(everywhere=True)."
            )
    elif Path(program).stem == "aws" and "aws-cli/2" in _output_of(program, environment, "--version"):
        return (
            f"{program} is the AWS CLI 2, which has a Python of its own, so its training jobs would bypass the queue. "
            "Use smq proxy instead of smq run."
        )
    return None


def python_of(program: Path, arguments: Sequence[str] = ()) -> list[str] | None:
    """Return the path of the Python that runs a program, followed by Python's options; None if the Python is unknown.

    The Python is the program itself, or the interpreter in the program's first line (#!). If the interpreter's path is
    too long for the first line or contains a space, pip writes /bin/sh into the first line and the path into the second
    line.
    """
    if _is_python(program.name):
        return [str(program), *_flags(arguments)]
    try:
        with program.open("rb") as file:
            first, second = (file.readline(_MOST_BYTES_OF_A_SHEBANG).decode(errors="replace") for _ in range(2))
    except OSError:
        return None
    if not first.startswith("#!"):
        return None
    words = first[2:].split()
    if words == ["/bin/sh"] and second.startswith("'''exec' "):
        with suppress(ValueError):  # a quotation mark without its partner
            words = list(takewhile(lambda word: word != "$0", shlex.split(second)[1:]))
    if words and Path(words[0]).name == "env":
        named = [word for word in words[1:] if word != "-S" and "=" not in word]
        words = [shutil.which(named[0]) or "", *named[1:]] if named and _is_python(Path(named[0]).name) else []
    return [words[0], *_flags(words[1:])] if words and _is_python(Path(words[0]).name) else None


def _flags(arguments: Sequence[str]) -> list[str]:
    """Return the options in a command line of Python that precede the script, ``-m`` or ``-c``."""
    flags: list[str] = []
    words = iter(arguments)
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            break
        # Letters may be combined in one word; c, m, W and X take the rest of the word, or the next word.
        letters = next((word[:place] for place, letter in enumerate(word) if letter in "cmWX"), word)
        if letters == word:
            flags.append(word)
        elif word[len(letters)] in "cm":
            return [*flags, letters] if len(letters) > 1 else flags
        else:
            flags += [word] if len(word) > len(letters) + 1 else [word, *islice(words, 1)]
    return flags


def _is_python(name: str) -> bool:
    name = name[:-4] if name.endswith(".exe") else name
    return name.rstrip("0123456789.") in ("python", "pypy")


def _probe(python: str, flags: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run ``_PROBE`` in a Python and return the output. No module of the user's working folder is imported.

    ``python -c`` searches the working folder for modules first. Therefore the probe is a file in a new folder: Python
    searches the script's folder instead. The probe still runs in the working folder, because pyenv and similar tools
    choose a Python by the working folder.
    """
    with tempfile.TemporaryDirectory(prefix="smq-") as folder:  # only this user can write to this folder
        probe = Path(folder, "probe.py")
        probe.write_text(_PROBE)
        return _output_of(python, without_working_folder(environment), *flags, str(probe)).strip()


def without_working_folder(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the entries of PYTHONPATH that are in or below the working folder."""
    here = Path.cwd().resolve()
    kept = [
        part
        for part in environment.get("PYTHONPATH", "").split(os.pathsep)
        if part and here not in (place := (here / part).resolve(), *place.parents)
    ]
    changed = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    return {**changed, "PYTHONPATH": os.pathsep.join(kept)} if kept else changed


def _output_of(program: str, environment: Mapping[str, str], *arguments: str) -> str:
    """Return the stdout of a program; empty if the program cannot be run or exceeds _LONGEST_PROBE_SECONDS."""
    try:
        return subprocess.run(
            [program, *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONGEST_PROBE_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
