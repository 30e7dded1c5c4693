"""Request rates: a token bucket for each operation that has one."""

import threading
import time
from collections.abc import Callable, Mapping

from local_cloud.sagemaker.account.options import Rate
from local_cloud.sagemaker.wire import EmulatedError


class TokenBucket:
    """Holds `burst` tokens at most and gets `per_second` new ones. Safe for threads."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = float(rate.burst)
        self._filled_at = clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a token if there is one."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._rate.burst, self._tokens + (now - self._filled_at) * self._rate.per_second)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


class Throttle:
    """Refuses calls beyond the rate of their operation."""

    def __init__(self, rates: Mapping[str, Rate | None]) -> None:
        self._buckets = {operation: TokenBucket(rate) for operation, rate in rates.items() if rate}

    def check(self, operation: str) -> None:
        """Raise a ThrottlingException if the account's calls of this operation come too fast."""
        if (bucket := self._buckets.get(operation)) and not bucket.take():
            raise EmulatedError("ThrottlingException", "Rate exceeded")
