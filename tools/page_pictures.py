"""Make the pictures of docs/run/web-page.md: each page of `smq ui` with a sample queue, in Chromium.

python -m tools.page_pictures [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

from tests.browser import browsing, page_of, smq_ui
from tests.client.ui.sample_queue import SampleQueue, sample_queue

_VARIANTS = {"": ("light", 1440, 900), "-dark": ("dark", 820, 1100)}
# The sample queue checks no signature, so any credentials work.
_ACCOUNT = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "sample", "AWS_SECRET_ACCESS_KEY": "sample"}
_SETTLED = 2500  # milliseconds from the loading of a page until its figures are drawn


def main() -> None:
    """Write two pictures of each page."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/ui")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as temporary,
        sample_queue(24) as queue,
        smq_ui({**_ACCOUNT, "SAGEMAKER_QUEUE_URL": queue.url}, Path(temporary, "log")) as served,
        browsing() as browser,
    ):
        for variant, (scheme, width, height) in _VARIANTS.items():
            viewport = {"width": width, "height": height}
            with page_of(browser, served, viewport=viewport, color_scheme=scheme) as page:
                page.goto(served.address)
                for name, path in _pages(queue).items():
                    page.goto(served.address.rstrip("/") + path)
                    page.get_by_role("heading").first.wait_for()
                    if name == "what-if":
                        page.locator(".q-slider [tabindex]").first.press("ArrowRight")
                        page.get_by_text("would start now").wait_for()
                    if name == "job":
                        page.wait_for_timeout(_SETTLED)
                        page.get_by_role("tab", name="History").click()
                    page.wait_for_timeout(_SETTLED)
                    page.screenshot(path=folder / f"{name}{variant}.png")
                    print(folder / f"{name}{variant}.png")


def _pages(queue: SampleQueue) -> dict[str, str]:
    job = next(one["job"] for one in queue.waiting if one["state"] == "preempted")
    pages = {"fleet": "/", "queue": "/queue", "job": f"/job/{job}"}
    return {**pages, "projects": "/projects", "usage": "/usage", "what-if": "/what-if"}


if __name__ == "__main__":
    main()
