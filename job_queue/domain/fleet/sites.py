"""Sites: the accounts and regions in which the queue launches training jobs.

The home site is that of the queue's stack. The home site is written as None everywhere, so that a queue with one site
stores nothing about sites. Training jobs of two sites may have the same name. So the key of a training job consists of
its name and its site; the home site is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from job_queue.scheduler import Policy, Pool, Slots

_SEPARATOR = "@"  # between name and site in a key; names of training jobs cannot contain the character


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """A region and an account, at least one of which is not that of the queue's stack.

    None stands for the stack's own. `Site()`, the home site, is used only for comparisons.
    """

    region: str | None = None  # None: the region of the stack
    role: str | None = None  # ARN of the role that the queue assumes there; None: the queue's own role

    @property
    def account(self) -> str | None:
        """The number of the account; None: the account of the stack."""
        return self.role.split(":")[4] if self.role else None

    @property
    def key(self) -> str:
        """The region and the account as text, without the role: `us-east-2/222222222222`."""
        return f"{self.region or ''}/{self.account or ''}"

    @property
    def text(self) -> str:
        """The site as text for people."""
        region, account = self.region or "the queue's region", self.account
        return f"{region} of account {account}" if account else region


@dataclass(frozen=True, slots=True)
class HomeSite:
    """The region and account of the queue's stack."""

    region: str
    account: str

    @classmethod
    def of_function(cls, arn: str) -> "HomeSite | None":
        """Return the region and account in a function's ARN; None if the ARN has too few parts."""
        parts = arn.split(":")
        return cls(parts[3], parts[4]) if len(parts) > 4 else None

    def is_at(self, site: Site) -> bool:
        """Return whether a site names the home site's own region and account."""
        return self.place_of(site) == (self.region, self.account)

    def place_of(self, site: Site) -> tuple[str, str]:
        """Return the region and account of a site. A part that the site does not name is that of the stack."""
        return site.region or self.region, site.account or self.account


def key_of(name: str, site: Site | None) -> str:
    """Return the key of a training job: its name, and its site unless that is the home site."""
    return f"{name}{_SEPARATOR}{site.key}" if site else name


def name_in(key: str) -> str:
    """Return the name of the training job with this key."""
    return key.partition(_SEPARATOR)[0]


def region_of(site: Site | None) -> str | None:
    """Return the region of a site; None: the region of the stack."""
    return site.region if site else None


def account_of(site: Site | None) -> str | None:
    """Return the account of a site; None: the account of the stack."""
    return site.account if site else None


def same_place(one: Site | None, other: Site | None) -> bool:
    """Return whether two sites have the same account and region. Their roles may differ."""
    return (one.key if one else None) == (other.key if other else None)


def site_of_pool(pool: Pool) -> Site | None:
    """Return the site of a pool; None: the home site."""
    return Site(pool.region, pool.role) if pool.region or pool.role else None


def site_of_slots(slots: Slots, policy: Policy) -> Site | None:
    """Return the site of the pools in which these slots are; None: the home site."""
    return next((site_of_pool(pool) for pool in policy.pools if pool.name in slots), None)


def has_other_sites(policy: Policy) -> bool:
    """Return whether a pool is in another region or account."""
    return any(pool.region or pool.role for pool in policy.pools)


def sites_of(policy: Policy, others: Iterable[Site | None] = ()) -> tuple[Site, ...]:
    """Return the sites of a policy's pools and `others`, each account and region once, without the home site."""
    found = [*map(site_of_pool, policy.pools), *others]
    return tuple({site.key: site for site in reversed(found) if site}.values())[::-1]


@dataclass(frozen=True, slots=True)
class Origin:
    """The region and account of an event, and those of the queue's stack."""

    region: str
    account: str
    home: HomeSite

    @property
    def is_home(self) -> bool:
        """Whether the event comes from the home site."""
        return self.is_at(Site())

    def is_at(self, site: Site) -> bool:
        """Return whether the event comes from a site."""
        return (self.region, self.account) == self.home.place_of(site)


def site_of_event(policy: Policy, origin: Origin) -> Site | None:
    """Return the site from which an event comes; None if it is the home site, or if the policy has no pool there."""
    return next((site for site in sites_of(policy) if origin.is_at(site)), None)
