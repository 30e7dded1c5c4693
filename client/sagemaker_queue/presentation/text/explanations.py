"""Explanations as text: why a job waits, and the result of a dry run."""

from __future__ import annotations

from collections.abc import Sequence

from api_contract.models import JobDetail, PlanAnswer
from sagemaker_queue.presentation.tables.explanations import Section, plan_sections, why_sections
from sagemaker_queue.presentation.text.layout import folded


def why_page(job: JobDetail, width: int | None = None) -> str:
    """Return the reason why the job waits, the jobs ahead, the blocking jobs, and advice."""
    return sections_page(why_sections(job), width)


def plan_page(name: str, plan: PlanAnswer, width: int | None = None) -> str:
    """Return a dry run as text: the start, its instances and evictions with their rules, or why the job waits."""
    return sections_page(plan_sections(name, plan), width)


def sections_page(sections: Sequence[Section], width: int | None) -> str:
    """Return the sections, separated by blank lines."""
    return "\n\n".join("\n".join([section.title, *_lines(section, width)]) for section in sections)


def _lines(section: Section, width: int | None) -> list[str]:
    if section.listed:
        return [folded(f"- {line}", width, hanging="  ") for line in section.lines]
    return [folded(line, width) for line in section.lines]
