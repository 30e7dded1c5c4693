"""``python -m tools.failure_matrix``: update the table of failure classes and the confusion matrix of the classifier.

In both pages, text above the marker comment is written by hand; text below the marker is generated.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from job_queue.domain.failures import DEFAULT_ACTIONS, MEANINGS, REMEDIES, Failure, FailureClass, classify
from tools.generated_text import with_sections
from tools.markdown import table

ROOT = Path(__file__).parents[1]
CLASSES_PAGE = ROOT / "docs/reference/failures.md"
MATRIX_PAGE = ROOT / "docs/developers/failure-classifier.md"
TEXTS = ROOT / "tests/unit/domain/failures/public_texts.jsonl"
SETS = {
    "rules": "used to write the rules",
    "held_out": "kept aside while the rules were written",
    "unseen": "found after the rules were frozen",
}


@dataclass(frozen=True)
class PublicText:
    """A text about a failure from a public page, and the class that a person has assigned."""

    address: str
    expected: FailureClass
    set_name: str
    reason: str | None
    lines: tuple[str, ...]

    @property
    def failure(self) -> Failure:
        """The result of the classifier."""
        return classify(self.reason, None, self.lines)

    @property
    def is_right(self) -> bool:
        """Whether the classifier agrees with the person."""
        return self.failure.failure_class is self.expected


@cache
def public_texts() -> tuple[PublicText, ...]:
    """Return all texts."""
    rows = (json.loads(line) for line in TEXTS.read_text().splitlines())
    return tuple(
        PublicText(
            row["address"], FailureClass(row["class"]), row["set"], row.get("reason"), tuple(row.get("lines", ()))
        )
        for row in rows
    )


def with_classes(page: str) -> str:
    """Return the page about failures with the present classes."""
    rows = table(["class", "meaning", "built-in action", "remedy"], _classes())
    return with_sections(page, ["\n".join(["## Classes", "", rows])])


def with_matrix(page: str) -> str:
    """Return the page about the classifier with its present results."""
    return with_sections(page, _results())


def _results() -> Iterator[str]:
    yield "\n".join(["## How often the classifier is right", "", table(["texts", "right", "of"], _rates())])
    yield "\n".join(
        [
            "## Confusion matrix",
            "",
            "A row has the texts of one class, a column the classifier's answers. A dot is a zero.",
            "",
            table(["", *(f"`{name}`" for name in FailureClass)], _matrix()),
        ]
    )
    yield "\n".join(["## Wrong answers", "", table(["address", "class", "answer"], _wrong())])


def _classes() -> Iterator[list[str]]:
    for name in FailureClass:
        yield [f"`{name}`", MEANINGS[name], DEFAULT_ACTIONS[name], REMEDIES[name]]


def _rates() -> Iterator[list[str]]:
    for set_name, about in SETS.items():
        texts = [text for text in public_texts() if text.set_name == set_name]
        yield [about, str(sum(text.is_right for text in texts)), str(len(texts))]
    yield ["all", str(sum(text.is_right for text in public_texts())), str(len(public_texts()))]


def _matrix() -> Iterator[list[str]]:
    counts = Counter((text.expected, text.failure.failure_class) for text in public_texts())
    for expected in FailureClass:
        yield [f"`{expected}`", *(str(counts[expected, answer] or "·") for answer in FailureClass)]


def _wrong() -> Iterator[list[str]]:
    for text in public_texts():
        if not text.is_right:
            yield [f"<{text.address}>", f"`{text.expected}`", f"`{text.failure.failure_class}`"]


def main() -> int:
    """Update both pages. Return the exit status."""
    for path, renewed in ((CLASSES_PAGE, with_classes), (MATRIX_PAGE, with_matrix)):
        path.write_text(renewed(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
