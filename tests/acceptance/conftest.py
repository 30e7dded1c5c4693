"""One account for all checks, which is left as it was found, also after a failure and Ctrl-C."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.account import Account, Settings

# The script is PID 1 in its container, which no signal ends that it has no handler for.
ENDS_WHEN_TOLD = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))"
# Waits to be stopped, at most for as long as it may run.
FOREVER = f"{ENDS_WHEN_TOLD}\nprint('it runs', flush=True)\nwhile True: time.sleep(0.2)"


@pytest.fixture(scope="session")
def whole_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    account = Account(Settings.from_environment(), Path(tmp_path_factory.mktemp("work")))
    try:
        account.prepare()
        yield account
    finally:
        # A second Ctrl-C must not leave jobs behind that cost money.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: print("\nIt takes away what it made; please wait.", flush=True))
        if left := account.tidy():
            pytest.exit("These are left, and may cost money:\n" + "\n".join(left), 1)


@pytest.fixture
def account(whole_account: Account, request: pytest.FixtureRequest) -> Iterator[Account]:
    """The account, in which no job of an earlier check lives."""
    whole_account.check = f"{request.path.name}::{request.node.name}"
    yield whole_account
    for name in whole_account.mine():
        whole_account.queue.cancel(name)
    whole_account.wait("the check's jobs to end", lambda: not whole_account.mine())
