"""Request rates: a token bucket for each operation that has a rate."""

import threading
import time
from collections.abc import Callable, Mapping

from local_cloud.sagemaker.account.options import Rate
from local_cloud.sagemaker.wire import EmulatedError


class CallBucket:
    """A token bucket: at most `burst` tokens, refilled with `per_second` tokens each second. Safe for threads."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = float(rate.burst)
        self._filled_at = clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a token and return True, or return False if there is none."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._rate.burst, self._tokens + (now - self._filled_at) * self._rate.per_second)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


class Throttle:
    """The request rates of all operations; an operation without a rate has no limit."""

    def __init__(self, rates: Mapping[str, Rate | None]) -> None:
        self._buckets = {operation: CallBucket(rate) for operation, rate in rates.items() if rate}

    def check(self, operation: str) -> None:
        """Raise a ThrottlingException if the operation is called faster than its rate."""
        if (bucket := self._buckets.get(operation)) and not bucket.take():
            raise EmulatedError("ThrottlingException", "Rate exceeded")
