"""How fast attempts are launched: a token bucket for CreateTrainingJob, which AWS limits for the whole account.

The default quota is one call a second; how many may come at once is not documented, and others in the account use the
same quota. So the rate goes down when AWS throttles a call, and slowly up again when it does not.
"""

from dataclasses import dataclass, replace

SLOWEST = 0.1  # calls a second, whatever was throttled
SLOWER = 0.5  # of the rate, after a throttled call
ROUNDING = 1e-3  # of a call
FASTER = 0.05  # of the rate, after each call that was not


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
        learned = max(min(self.rate, rate.per_second), min(SLOWEST, rate.per_second))
        most = rate.burst if learned >= rate.per_second else 1
        gained = max(0.0, now - self.at) * learned
        return TokenBucket(min(self.tokens + gained, most), now, learned)

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

    def learned(self, rate: CreateRate, *, throttled: int, others: int) -> "TokenBucket":
        """After the answers: `throttled` of them say that it was too fast, `others` do not."""
        if throttled:
            return replace(self, tokens=min(self.tokens, 0.0), rate=max(self.rate * SLOWER, min(SLOWEST, self.rate)))
        return replace(self, rate=min(rate.per_second, self.rate * (1 + FASTER * others)))
