"""The functional core of the queue: plan(snapshot) -> Plan. No module here has access to AWS.

Import public names from this package only; the modules inside may change at any time.
"""

from job_queue.scheduler.carriers.allocations import WHOLE, GpuAllocation, GpuAssignment, Launch, Row
from job_queue.scheduler.carriers.instance_gpus import GPUS
from job_queue.scheduler.carriers.shared_plan import plan
from job_queue.scheduler.documents.policy_document import DocumentError, out_of_bounds, policy_from_document, shown
from job_queue.scheduler.documents.policy_schema import (
    MAX_PRIORITY,
    MOST_POOLS,
    MOST_PRICES,
    MOST_QUOTA_HOLDERS,
    UNLIMITED,
    Backfill,
    Budget,
    BudgetKind,
    Department,
    Interactive,
    Order,
    Policy,
    Pool,
    Prices,
    Project,
    Settings,
)
from job_queue.scheduler.explain.messages import clock, duration, instances, join, of_pool, sentence
from job_queue.scheduler.fair_share import oversubscriptions
from job_queue.scheduler.model import (
    DEFAULT,
    NOTHING,
    ActiveJob,
    Calendar,
    Carrier,
    Evict,
    Hold,
    JobState,
    PastUse,
    PausedPool,
    Plan,
    Reason,
    Rule,
    Slots,
    Snapshot,
    Start,
    WaitingJob,
)
from job_queue.scheduler.ordering import waiting_order
from job_queue.scheduler.sharing.ledger import UseLedger, looks_back_to, remembers
from job_queue.scheduler.sharing.spending import Spending
from job_queue.scheduler.what_if import WhatIf

__all__ = [
    "DEFAULT",
    "GPUS",
    "MAX_PRIORITY",
    "MOST_POOLS",
    "MOST_PRICES",
    "MOST_QUOTA_HOLDERS",
    "NOTHING",
    "UNLIMITED",
    "WHOLE",
    "ActiveJob",
    "Backfill",
    "Budget",
    "BudgetKind",
    "Calendar",
    "Carrier",
    "Department",
    "DocumentError",
    "Evict",
    "Hold",
    "JobState",
    "Launch",
    "Order",
    "PastUse",
    "PausedPool",
    "Plan",
    "Policy",
    "Pool",
    "Prices",
    "Project",
    "Reason",
    "Row",
    "Rule",
    "GpuAllocation",
    "Interactive",
    "Settings",
    "GpuAssignment",
    "Slots",
    "Snapshot",
    "Spending",
    "Start",
    "UseLedger",
    "WaitingJob",
    "WhatIf",
    "clock",
    "duration",
    "instances",
    "join",
    "looks_back_to",
    "of_pool",
    "out_of_bounds",
    "oversubscriptions",
    "plan",
    "policy_from_document",
    "remembers",
    "sentence",
    "shown",
    "waiting_order",
]
