"""Times that users write."""

import re
from datetime import datetime

from api_contract.shape import in_utc


def iso_time(text: str) -> datetime:
    """Parse a time in ISO 8601, such as 2026-11-22 or 2026-11-22T10:00, in UTC if the text has no zone.

    Raises ValueError for any other text, and OverflowError if the time in UTC is outside the range of datetime.
    ``Z`` is replaced because Python 3.9 and 3.10 do not parse it.
    """
    return in_utc(datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip())))
