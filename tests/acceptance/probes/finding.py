"""What a probe works with, and what it returns."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from tests.acceptance.account import Account


class Skipped(Exception):  # noqa: N818
    """A probe cannot measure here; the text says why, and what it needs."""


@dataclass(frozen=True)
class Finding:
    """The result of a probe."""

    measured: str
    assumed: str
    setting: str  # a stack parameter or a line of a policy
    as_assumed: bool | None  # None: not measured


@dataclass
class Lab:
    """The account of a probe, and how to remove what the probe makes."""

    account: Account
    stack: str | None
    _cleanup: ExitStack = field(default_factory=ExitStack)
    _left: list[str] = field(default_factory=list)

    def client(self, service: str) -> Any:
        """Return a boto3 client in the region of the queue."""
        make: Any = self.account.session.client
        return make(service)

    def name(self, what: str) -> str:
        """Return a name that no other run has."""
        return self.account.name(what)

    def make(self, what: str, create: Callable[[], Any], remove: Callable[..., object], **arguments: Any) -> Any:
        """Create something, and call `remove` at the end of the probe, also after an error and Ctrl-C.

        What was made last is removed first. Ctrl-C waits until the creation is noted, so that nothing is left.
        """

        def removed() -> None:
            try:
                remove(**arguments)
            except ClientError as error:
                self._left.append(f"{what}: {error}")

        with _interrupted_afterwards():
            made = create()
            self._cleanup.callback(removed)
        return made

    @contextmanager
    def cleaning(self, left: list[str]) -> Iterator[None]:
        """Remove at the end what `make` has made; add to `left` what could not be removed."""
        try:
            yield
        finally:
            self._cleanup.close()
            left += self._left

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the stack."""
        if self.stack is None:
            raise Skipped("needs a stack: --stack NAME")
        (stack,) = self.client("cloudformation").describe_stacks(StackName=self.stack)["Stacks"]
        return {it["ParameterKey"]: it["ParameterValue"] for it in stack.get("Parameters", ())}


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Let Ctrl-C take effect at the end of the block."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def code(error: ClientError) -> str:
    """Return the error code of AWS."""
    return str(error.response["Error"].get("Code"))
