"""Run Python code in 16 threads of a new process that begin at the same moment."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys, threading
{setup}

def run():
    barrier.wait()
    {call}

threads = [threading.Thread(target=run) for _ in range(16)]
barrier = threading.Barrier(len(threads))
sys.setswitchinterval(1e-6)  # each thread is interrupted wherever that is possible
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def run_at_once(setup: str, call: str) -> None:
    """Run a call for the first time in 16 threads at once.

    :param setup: statements that run before the threads begin.
    :param call: an expression.
    :raises AssertionError: the process failed or printed an error.
    """
    command = [sys.executable, "-X", "faulthandler", "-c", _PROGRAM.format(setup=setup, call=call)]
    path = [str(Path(__file__).parents[1] / it) for it in ("", "client")]
    settings = {"PYTHONPATH": ":".join(path)}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
