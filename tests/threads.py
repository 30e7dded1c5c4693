"""Run Python code in many threads of a new process, while msgspec reads types slowly."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import random, sys, threading, time
import msgspec._utils as reading
{setup}

quick, began = reading._get_class_mro_and_typevar_mappings, threading.Event()

def slow(kind):
    began.set()
    time.sleep(0.002)
    return quick(kind)

reading._get_class_mro_and_typevar_mappings = slow
"""
_AT_ONCE = """
def run():
    barrier.wait()
    time.sleep(random.uniform(0, 0.01))
    {call}

threads = [threading.Thread(target=run) for _ in range(16)]
barrier = threading.Barrier(len(threads))
sys.setswitchinterval(1e-6)  # each thread is interrupted wherever that is possible
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
_FORK = """
import os, signal

thread = threading.Thread(target=lambda: {call})
thread.start()
began.wait()
child = os.fork()
if not child:
    signal.alarm(30)
    {call}
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def run_at_once(setup: str, call: str) -> None:
    """Run a call for the first time in 16 threads at once.

    :param setup: statements that run before the threads begin.
    :param call: an expression that converts to a type with msgspec.
    :raises AssertionError: the process failed or printed an error.
    """
    _run(_PROGRAM.format(setup=setup) + _AT_ONCE.format(call=call))


def run_in_a_fork(setup: str, call: str) -> None:
    """Run a call in a thread for the first time, and meanwhile in a forked process. See `run_at_once`."""
    _run(_PROGRAM.format(setup=setup) + _FORK.format(call=call))


def _run(program: str) -> None:
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", program]
    path = [str(Path(__file__).parents[1] / it) for it in ("", "client")]
    settings = {"PYTHONPATH": ":".join(path)}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
