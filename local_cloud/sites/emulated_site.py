"""Sites: the pairs of account and region in which the local cloud has SageMaker."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

HOME_ACCOUNT = "000000000000"
MOST_ACCOUNTS = 10  # the others are 111111111111, 222222222222 and so on
MOST_REGIONS = 10
HOME_REGION = "us-east-1"  # the default
_REGION = r"[a-z]{2}(-[a-z]+)+-[1-9][0-9]?"


@dataclass(frozen=True, order=True)
class EmulatedSite:
    """An account and a region."""

    account: str
    region: str

    def __str__(self) -> str:
        return f"{self.account}/{self.region}"

    @property
    def role_name(self) -> str:
        """The name of the role that the queue assumes to work in this site, if this is not the home site."""
        return f"sagemaker-queue-satellite-{self.region}"

    @property
    def role_arn(self) -> str:
        """The ARN of the role `role_name`."""
        return f"arn:aws:iam::{self.account}:role/{self.role_name}"

    @property
    def bus_arn(self) -> str:
        """The ARN of the site's default event bus."""
        return f"arn:aws:events:{self.region}:{self.account}:event-bus/default"


def all_sites(regions: Sequence[str], accounts: int) -> tuple[EmulatedSite, ...]:
    """Return each pair of account and region. The first pair is the home site. Raise ValueError for wrong arguments."""
    if not 1 <= accounts <= MOST_ACCOUNTS:
        raise ValueError(f"a local cloud has from 1 to {MOST_ACCOUNTS} accounts, not {accounts}")
    if not 1 <= len(regions) <= MOST_REGIONS:
        raise ValueError(f"a local cloud has from 1 to {MOST_REGIONS} regions, not {len(regions)}")
    for region in regions:
        if not re.fullmatch(_REGION, region):
            raise ValueError(f"{region!r} is not the name of a region, such as us-east-2")
    if twice := sorted({region for region in regions if regions.count(region) > 1}):
        raise ValueError(f"{twice[0]} is given twice")
    return tuple(EmulatedSite(account_number(at), region) for at in range(accounts) for region in regions)


def account_number(position: int) -> str:
    """Return the number of the account at a position; 0 is the home account."""
    return str(position) * 12


def parse_regions(text: str) -> tuple[str, ...]:
    """Parse names of regions, separated by commas. Raise ValueError with the reason if the text is wrong."""
    regions = tuple(part.strip() for part in text.split(","))
    all_sites(regions, 1)
    return regions


def parse_accounts(text: str) -> int:
    """Parse the number of accounts. Raise ValueError with the reason if the text is wrong."""
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise ValueError(f"{text!r} is not a number from 1 to {MOST_ACCOUNTS}")
    all_sites((HOME_REGION,), int(text))
    return int(text)
