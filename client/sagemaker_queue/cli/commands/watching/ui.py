"""``smq ui``: the queue in a browser."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_queue.cli.commands.watching.interval import TRIES, interval_option
from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import DONE
from sagemaker_queue.cli.parser import command, connection, flag, option
from sagemaker_queue.errors import ConfigError

if TYPE_CHECKING:
    from sagemaker_queue.ui.guard import Access

SECONDS = 5.0
TIMEOUT_SECONDS = (5.0, 20.0)
_EXTRA = "smq ui needs more than is installed: pip install 'sagemaker-queue[ui]' (Python 3.10 or newer)."


@command(
    "ui",
    help="show the queue in a browser",
    description="Show the queue as pages in a browser: the fleet over time, the queue, each job, projects, usage, and "
    "what other capacities or policies would change. They are served on this machine, to whoever has the address that "
    "is printed, and ask the queue with your own credentials. Ctrl-C ends it. --export writes files instead.",
    examples=["smq ui", "smq ui --port 8800 --no-browser", "smq ui --export report"],
)
@option("--port", metavar="PORT", type=int, help="the port (default: 8787, or a free one if that is taken)")
@flag("--no-browser", help="print the address, and open no browser")
@option(
    "--prefix", metavar="PATH", default="", help="the path below which a proxy serves it, if the proxy does not tell"
)
@option("--export", metavar="DIR", type=Path, shell_complete=files, help="write the pages to files, and end")
@interval_option(SECONDS)
def ui(port: int | None, no_browser: bool, prefix: str, export: Path | None, interval: float) -> int:
    """Serve the pages, or write them."""
    queue = connection().queue(tries=TRIES, timeout_seconds=TIMEOUT_SECONDS)
    try:
        if export is not None:
            from sagemaker_queue.ui.export import write_pages  # noqa: PLC0415

            write_pages(queue, export)
            print(f"The queue as it is now stands in {export / 'index.html'}")
            return DONE
        from sagemaker_queue.ui.application import listen, serve  # noqa: PLC0415
        from sagemaker_queue.ui.guard import Access  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(_EXTRA) from error
    access = Access(prefix=prefix)
    with listen(port) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        serve(queue, access, listening, interval, lambda: _tell(address, access, opens=not no_browser))
    return DONE


def _tell(address: str, access: Access, *, opens: bool) -> None:
    here = f"{address}/?token={access.token}"
    print(f"The queue is at {here}", flush=True)
    if hub := os.environ.get("JUPYTERHUB_SERVICE_PREFIX"):
        print(f"In JupyterHub: {hub}proxy/{address.rpartition(':')[2]}/?token={access.token}", flush=True)
    print("Whoever has this address acts as you. Ctrl-C ends it.", flush=True)
    if opens:
        webbrowser.open(here)
