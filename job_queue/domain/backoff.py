"""The waits between tries (up to 15 min, with jitter), and the duration of refusals that alerts an operator."""

from hashlib import sha256

FIRST_SECONDS = 15
LONGEST_SECONDS = 15 * 60
LASTING_SECONDS = 30 * 60  # from the first to the last refusal in a row; then RefusalAlarm alerts an operator


def backoff_seconds(key: str, failures: int) -> int:
    """Return the seconds to wait after this many failures in a row, 1 or more.

    The step is 15 s after the first failure, doubles with each further failure, and is at most 15 min. The result is
    between half of the step and the whole step. The jitter is derived from a hash. So a repeated transition has the
    same result, and jobs that failed together are not retried together.
    """
    step = min(FIRST_SECONDS << (failures - 1), LONGEST_SECONDS)
    part = int.from_bytes(sha256(f"{key}#{failures}".encode()).digest()[:4]) / 2**32
    return round(step * (1 + part) / 2)
