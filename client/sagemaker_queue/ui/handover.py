"""Handover of the token to a browser on this machine, by a page in a file that only the user can read.

Every user of a machine can read command lines. So the browser's command has only the file's name, and the page in the
file posts the token.
"""

from __future__ import annotations

import html
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_queue.ui.guard import ENTER

if TYPE_CHECKING:
    from sagemaker_queue.ui.guard import ServerAccess


class Handover:
    """A page that posts the token to the server at ``address``; a context manager that removes the page."""

    def __init__(self, address: str, access: ServerAccess) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="smq-ui-"))  # 0700
        self.page = self._folder / "open.html"
        content = (
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<title>SageMaker queue</title><form method="post" action="{html.escape(address + ENTER)}">'
            f'<input type="hidden" name="token" value="{html.escape(access.token)}"><button>Open the queue</button>'
            "</form><script>document.forms[0].submit()</script>\n"
        )
        with open(os.open(self.page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
            file.write(content)
        access.entered = self.remove

    def __enter__(self) -> Handover:
        """Return the handover; the page already exists."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the page."""
        self.remove()

    def remove(self) -> None:
        """Remove the page and its folder, if they still exist."""
        shutil.rmtree(self._folder, ignore_errors=True)
