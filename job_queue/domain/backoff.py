"""How long to wait before the next try: twice as long after each failure, up to an end, and not all alike."""

from hashlib import sha256

FIRST_SECONDS = 15
LONGEST_SECONDS = 15 * 60
LASTING_SECONDS = 30 * 60  # from the first refusal in a row to the last, after which an operator should look


def backoff_seconds(key: str, failures: int) -> int:
    """Seconds to wait after so many failures in a row, 1 or more.

    Between half of the step and all of it. The part is drawn from a hash, so that the same transition, made twice,
    is the same, and that jobs which failed together do not come back together.
    """
    step = min(FIRST_SECONDS << (failures - 1), LONGEST_SECONDS)
    part = int.from_bytes(sha256(f"{key}#{failures}".encode()).digest()[:4]) / 2**32
    return round(step * (1 + part) / 2)
