"""``smq ui``: show the queue in a browser."""

from __future__ import annotations

import os
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.commands.watching.interval import TRIES, interval_option
from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import DONE
from sagemaker_queue.cli.parser import command, connection, flag, option
from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.config.pace import POLL_SECONDS

if TYPE_CHECKING:
    from sagemaker_queue.ui.guard import ServerAccess
    from sagemaker_queue.ui.handover import Handover

TIMEOUT_SECONDS = (5.0, 20.0)
_EXTRA = "smq ui needs Python 3.10 or later and two packages: pip install 'nicegui>=3.18' 'plotly>=6'"
_TEXT_BROWSERS = frozenset({"www-browser", "links", "elinks", "lynx", "w3m"})  # webbrowser may return these


@command(
    "ui",
    help="show the queue in a browser",
    description="Show the queue as pages in a browser: the fleet over time, the queue, each job, projects, usage, "
    "and the effect of other capacities or policies. The pages are served only on this machine, and use "
    "your own credentials. The browser that opens has access; in any other browser, enter the printed "
    "token, which is valid once. Ctrl-C ends the server. --export writes files instead.",
    examples=[
        "smq ui",
        "smq ui --port 8800 --no-browser",
        "smq ui --no-browser --port 8787 --address https://hub.example/user/ann/proxy/8787",
        "smq ui --export report",
    ],
)
@option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="the port (default: 8787, or a free port if 8787 is taken)",
)
@flag("--no-browser", help="print the address and the token; open no browser")
@option(
    "--address", metavar="URL", default="", help="the address at which a proxy serves the pages, such as JupyterHub's"
)
@option(
    "--export", metavar="DIR", type=Path, shell_complete=files, help="write the pages to files in this folder, and end"
)
@interval_option(POLL_SECONDS)
def ui(port: int | None, no_browser: bool, address: str, export: Path | None, interval: float) -> int:
    """Serve the pages until Ctrl-C, or write them to files."""
    queue = connection().queue(tries=TRIES, timeout_seconds=TIMEOUT_SECONDS)
    try:
        if export is not None:
            from sagemaker_queue.ui.export import write_pages  # noqa: PLC0415

            write_pages(queue, export)
            print(f"The present state of the queue is in {export / 'index.html'}")
            return DONE
        from sagemaker_queue.ui.application import listen, serve  # noqa: PLC0415
        from sagemaker_queue.ui.guard import ServerAccess  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(_EXTRA) from error
    from sagemaker_queue.ui.handover import Handover  # noqa: PLC0415

    access = ServerAccess(address=address)
    with listen(port) as listening:
        own_address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with nullcontext() if no_browser or address else Handover(own_address, access) as handover:
            remove = handover.remove if handover else lambda: None
            serve(queue, access, listening, interval, lambda: _print_access(own_address, access, handover), remove)
    return DONE


def _print_access(own_address: str, access: ServerAccess, handover: Handover | None) -> None:
    """Open the browser if there is a handover, and print the address and the token."""
    # Behind a proxy, there is no handover and no browser is opened here, because users open the proxy's address.
    opened = handover is not None and _open_in_browser(handover.page)
    place = f"{(access.address or own_address).rstrip('/')}/"
    if opened:
        print(f"The queue opens in your browser. If it does not, open {place} and enter this token:", flush=True)
    else:
        print(f"The queue is at {place} Open it, and enter this token:", flush=True)
    print(f"  {access.token}", flush=True)
    hub = os.environ.get("JUPYTERHUB_SERVICE_PREFIX")
    if hub and not access.address:
        port = own_address.rpartition(":")[2]
        print(
            f"In JupyterHub and Studio: smq ui --no-browser --port {port} --address https://HUB{hub}proxy/{port}",
            flush=True,
        )
    print(
        "The token is valid for one browser, which then acts under your identity. Ctrl-C ends the server.", flush=True
    )


def _open_in_browser(page: Path) -> bool:
    """Open a page in a graphical browser, and return whether it was opened.

    A text browser is not opened: it would use this terminal, and the server would wait until it ends.
    """
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    name = getattr(browser, "name", "")  # the browsers of macOS have no name in Python 3.10
    return Path(name).name not in _TEXT_BROWSERS and browser.open(page.as_uri())
