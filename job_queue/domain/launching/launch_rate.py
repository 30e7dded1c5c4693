"""How fast attempts are launched: a token bucket for CreateTrainingJob, which AWS limits for the whole account.

The default quota is one call a second; how many may come at once is not documented, and others in the account use the
same quota. So the rate goes down when AWS throttles a call, and up again with time.
"""

from dataclasses import dataclass, replace

SLOWEST = 0.25  # calls a second, whatever was throttled
SLOWER = 0.7  # of the rate, after a throttled call
DOUBLED_SECONDS = 60  # in which the rate doubles, up to the configured one
ROUNDING = 1e-3  # of a call


@dataclass(frozen=True, slots=True)
class CreateRate:
    """What the queue may use of the account's quota, as its operator sets it."""

    per_second: float = 1.0
    burst: int = 5  # calls that may come at once after a while without any


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """The calls that may be sent now. Immutable; times are epoch seconds."""

    tokens: float
    at: float  # when it had so many
    rate: float  # calls a second, as learned

    @classmethod
    def full(cls, rate: CreateRate, now: float) -> "TokenBucket":
        """As it is when nothing was launched for long."""
        return cls(rate.burst, now, rate.per_second)

    def filled(self, rate: CreateRate, now: float) -> "TokenBucket":
        """As it is now. Bounds are today's: the operator may have changed them. A clock may go back a little."""
        seconds = max(0.0, now - self.at)
        before = max(self.rate, min(SLOWEST, rate.per_second))
        learned = min(rate.per_second, before * 2 ** min(seconds / DOUBLED_SECONDS, 10))
        most = rate.burst if learned >= rate.per_second else 1
        return TokenBucket(min(self.tokens + seconds * learned, most), now, learned)

    @property
    def calls(self) -> int:
        """How many may be sent now."""
        return int(self.tokens + ROUNDING)

    @property
    def next_at(self) -> float:
        """When the next one may be sent."""
        return self.at + max(0.0, 1 - self.tokens) / self.rate

    def spent(self, calls: int) -> "TokenBucket":
        """After so many calls."""
        return replace(self, tokens=self.tokens - calls)

    def throttled(self) -> "TokenBucket":
        """After an answer that says that it was too fast."""
        return replace(self, tokens=min(self.tokens, 0.0), rate=max(self.rate * SLOWER, min(SLOWEST, self.rate)))
