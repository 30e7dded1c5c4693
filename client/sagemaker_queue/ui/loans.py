"""Who borrows from whom: what projects use beyond their quota, and whose unused quota that may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sagemaker_queue.formatting import amount
from sagemaker_queue.models import QueueStatus


@dataclass(frozen=True)
class Loan:
    """What one project uses of a pool beyond its quota."""

    pool: str
    borrower: str
    count: int
    lenders: tuple[tuple[str, int], ...]  # projects that use less than their quota of that pool, and how much less
    unassigned: int  # instances of the pool that are in nobody's quota

    @property
    def sentence(self) -> str:
        """The same for people."""
        sources = [f"{name} leaves {left} of its quota unused" for name, left in self.lenders]
        if self.unassigned:
            sources.append(f"{amount(self.unassigned, 'instance')} {'is' if self.unassigned == 1 else 'are'} nobody's")
        rest = f": {', '.join(sources)}" if sources else ""
        return f"{self.borrower} uses {amount(self.count, 'instance')} of {self.pool} beyond its quota{rest}."


def loans(status: QueueStatus) -> Iterator[Loan]:
    """Yield what is borrowed at this moment, pool by pool."""
    for pool in status.pools:
        quotas = {project.name: project.quota.get(pool.name, 0) for project in status.projects}
        used = {project.name: project.used.get(pool.name, 0) for project in status.projects}
        lenders = tuple((name, quota - used[name]) for name, quota in quotas.items() if used[name] < quota)
        unassigned = max(0, pool.capacity - sum(quotas.values()))
        for name, quota in quotas.items():
            if used[name] > quota:
                yield Loan(pool.name, name, used[name] - quota, lenders, unassigned)
