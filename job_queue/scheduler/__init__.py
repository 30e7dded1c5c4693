"""The functional core: what to start, whom to evict, why the rest waits. It knows no AWS."""

from job_queue.scheduler.decisions import Evict, Hold, Plan, Reason, Rule, Start
from job_queue.scheduler.planner import plan

__all__ = ["Evict", "Hold", "Plan", "Reason", "Rule", "Start", "plan"]
