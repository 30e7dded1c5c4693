"""Borrowed instances: usage of projects beyond their quota, and the projects whose quota is unused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api_contract.models import QueueStatus
from sagemaker_queue.jobs.formatting import amount


@dataclass(frozen=True)
class Loan:
    """The usage of a pool by one project beyond its quota."""

    pool: str
    borrower: str
    count: int
    lenders: tuple[tuple[str, int], ...]  # projects that use less than their quota, and their unused instances
    unassigned: int  # instances of the pool that are in no project's quota

    @property
    def sentence(self) -> str:
        """Sentence about the loan, for users."""
        sources = [f"{name} leaves {left} of its quota unused" for name, left in self.lenders]
        if self.unassigned:
            sources.append(
                f"{amount(self.unassigned, 'instance')} {'is' if self.unassigned == 1 else 'are'} in no quota"
            )
        rest = f": {', '.join(sources)}" if sources else ""
        return f"{self.borrower} uses {amount(self.count, 'instance')} of {self.pool} beyond its quota{rest}."


def loans(status: QueueStatus) -> Iterator[Loan]:
    """Yield the present loans, pool by pool."""
    for pool in status.pools:
        quotas = {project.name: project.quota.get(pool.name, 0) for project in status.projects}
        used = {project.name: project.used.get(pool.name, 0) for project in status.projects}
        lenders = tuple((name, quota - used[name]) for name, quota in quotas.items() if used[name] < quota)
        unassigned = max(0, pool.capacity - sum(quotas.values()))
        for name, quota in quotas.items():
            if used[name] > quota:
                yield Loan(pool.name, name, used[name] - quota, lenders, unassigned)
