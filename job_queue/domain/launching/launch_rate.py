"""The launch rate: a token bucket for CreateTrainingJob, which AWS limits for the whole account.

The default quota is one call a second. The permitted burst is not documented, and other programs in the account use the
same quota. So the queue lowers its rate when AWS throttles a call, and raises it again with time.
"""

from dataclasses import dataclass, replace

LOWEST_RATE = 0.25  # calls a second; throttling never lowers the rate below this
RATE_DECREASE = 0.7  # factor on the rate after a throttled call
DOUBLING_SECONDS = 60  # time in which the rate doubles, up to the configured rate
ROUNDING = 1e-3  # tokens; tolerance for rounding errors when whole calls are counted


@dataclass(frozen=True, slots=True)
class CreateRate:
    """The part of the account's quota that the queue may use, as its operator configures it."""

    per_second: float = 1.0
    burst: int = 5  # calls at once after a pause


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """The calls that may be sent now. Immutable; times are epoch seconds."""

    tokens: float
    at: float  # epoch seconds at which the bucket had these tokens
    rate: float  # calls a second, lowered by throttled calls and raised by time

    @classmethod
    def full(cls, rate: CreateRate, now: float) -> "TokenBucket":
        """Return the bucket after a long time without launches."""
        return cls(rate.burst, now, rate.per_second)

    def filled(self, rate: CreateRate, now: float) -> "TokenBucket":
        """Return the bucket at this time, within the configured bounds, which may have changed.

        If the clock has gone back, no token is added.
        """
        seconds = max(0.0, now - self.at)
        before = max(self.rate, min(LOWEST_RATE, rate.per_second))
        learned = min(rate.per_second, before * 2 ** min(seconds / DOUBLING_SECONDS, 10))
        most = rate.burst if learned >= rate.per_second else 1
        return TokenBucket(min(self.tokens + seconds * learned, most), now, learned)

    @property
    def calls(self) -> int:
        """The number of calls that may be sent now."""
        return int(self.tokens + ROUNDING)

    @property
    def next_at(self) -> float:
        """The time at which the next call may be sent, in epoch seconds."""
        return self.at + max(0.0, 1 - self.tokens) / self.rate

    def spent(self, calls: int) -> "TokenBucket":
        """Return the bucket after this many calls."""
        return replace(self, tokens=self.tokens - calls)

    def throttled(self) -> "TokenBucket":
        """Return the bucket after a throttled call: without tokens, and with the rate multiplied by `RATE_DECREASE`."""
        return replace(
            self, tokens=min(self.tokens, 0.0), rate=max(self.rate * RATE_DECREASE, min(LOWEST_RATE, self.rate))
        )
