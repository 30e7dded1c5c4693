"""Links of the documentation, and links that the program prints, lead to an existing page and anchor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api_contract.error_codes import Error, ErrorCode
from job_queue.scheduler import WaitReason
from sagemaker_queue.jobs.doc_links import BASE, error_links, reason_link
from tools.markdown import anchors, headings, links, with_links

ROOT = Path(__file__).parents[1]
PLACES = ("*.md", "docs/**/*.md", "events/*.md", "examples/**/*.md")
PAGES = sorted(path for place in PLACES for path in ROOT.glob(place))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_anchors_of_links_exist(page: Path) -> None:
    for target in links(page.read_text()):
        file, _, anchor = target.partition("#")
        linked = page.parent / file if file else page
        if target.startswith(("http://", "https://")) or linked.suffix != ".md":
            continue  # the anchor of a picture is GitHub's: #gh-dark-mode-only
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}"


def reason_codes() -> list[str]:
    """The codes of wait reasons: those of the scheduler, and those of jobs that it did not look at."""
    source = (ROOT / "job_queue/api/queue_position.py").read_text()
    return [*(reason.value for reason in WaitReason), *re.findall(r'Reason\("([A-Z_]+)"', source)]


def test_there_are_codes_beyond_the_schedulers() -> None:
    assert {"NOT_PLANNED_YET", "BEYOND_WINDOW", "STARTING_SOON"} <= set(reason_codes())


@pytest.mark.parametrize("code", reason_codes())
def test_the_link_of_each_wait_reason_has_an_anchor(code: str) -> None:
    check(reason_link(code), code)


@pytest.mark.parametrize("code", [code.value for code in ErrorCode])
def test_the_link_of_each_error_has_an_anchor(code: str) -> None:
    (link,) = error_links([Error(code, "One."), Error(code, "Two.")])
    check(link, code)


def check(link: str, code: str) -> None:
    file, _, anchor = link.partition("#")
    page = ROOT / file
    assert file.startswith(BASE)
    assert anchor in {heading.anchor for heading in headings(page.read_text()) if heading.text == code}


def test_an_unknown_error_of_a_newer_queue_has_no_link() -> None:
    assert error_links([Error("Newer", "One.")]) == []


PAGE = """# smq: all commands

## `smq policy diff`

## `GET /jobs/{name}`

## A – B: `OVER_LIMIT`

## A

### A

```
## no heading
[f](f.md)
```

    ## neither

    - [g](g.md)
      - [h](h.md)

- item
    - [in a list](i.md)

See [`smq ls`](ls.md#a) and `[b](b.md)`, ![](c.svg) <img src="d.png">.
"""


def test_anchors_are_those_of_github() -> None:
    found = [heading.anchor for heading in headings(PAGE)]
    assert found == ["smq-all-commands", "smq-policy-diff", "get-jobsname", "a--b-over_limit", "a", "a-1"]


def test_links_in_code_are_no_links() -> None:
    assert links(PAGE) == ["i.md", "ls.md#a", "c.svg", "d.png"]
    renewed = with_links(PAGE, lambda target: f"../{target}")
    assert links(renewed) == ["../i.md", "../ls.md#a", "../c.svg", "../d.png"]
    assert renewed.replace("../", "") == PAGE
