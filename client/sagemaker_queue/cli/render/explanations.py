"""In words: why a job waits, and what would become of one that is not submitted yet."""

from __future__ import annotations

from collections.abc import Sequence

from sagemaker_queue.cli.render.layout import folded
from sagemaker_queue.models import JobDetail, PlanAnswer
from sagemaker_queue.tables.explanations import Section, plan_sections, why_sections


def why_page(job: JobDetail, width: int | None = None) -> str:
    """Return why the job waits, what is ahead of it, who is in its way, and what would change that."""
    return _page(why_sections(job), width)


def plan_page(name: str, plan: PlanAnswer, width: int | None = None) -> str:
    """Return whether the job would start, where, at whose cost and by which rule; else why not."""
    return _page(plan_sections(name, plan), width)


def _page(sections: Sequence[Section], width: int | None) -> str:
    """Return a section below the other; a blank line is before each but the first."""
    return "\n\n".join("\n".join([section.title, *_lines(section, width)]) for section in sections)


def _lines(section: Section, width: int | None) -> list[str]:
    if section.listed:
        return [folded(f"- {line}", width, hanging="  ") for line in section.lines]
    return [folded(line, width) for line in section.lines]
