"""Serve the pages of ``smq ui`` on this machine: the application, its routes and its server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from nicegui import Client, ui

from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.config.pace import states
from sagemaker_queue.ui.frame import DARK, build_frame, build_head
from sagemaker_queue.ui.guard import Guard, ServerAccess
from sagemaker_queue.ui.pages.fleet import fleet_page
from sagemaker_queue.ui.pages.job import job_page
from sagemaker_queue.ui.pages.projects import projects_page
from sagemaker_queue.ui.pages.queue import queue_page
from sagemaker_queue.ui.pages.usage import usage_page
from sagemaker_queue.ui.pages.what_if import what_if_page
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import Viewer
from sagemaker_queue.workflows.poller import Poller

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

HOST = "127.0.0.1"
PORT = 8787
_GRACE_SECONDS = 1  # maximum wait for open tabs to disconnect when the server ends


def listen(port: int | None) -> socket.socket:
    """Return a listening socket that only this machine can reach.

    ``port`` defaults to ``PORT``, or to any free port if ``PORT`` is in use. Raises ConfigError if a given port is in
    use.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, PORT if port is None else port))
        # Listen before the address is printed, so that early connections wait until the server accepts them.
        listening.listen()
    except OSError as error:
        listening.close()
        if port is None:
            return listen(0)
        raise ConfigError(
            f"Port {port} is not available: {error.strerror}. Without --port, smq ui uses a free one."
        ) from error
    return listening


def serve(
    queue: QueueClient,
    access: ServerAccess,
    listening: socket.socket,
    interval: float,
    begun: Callable[[], None],
    ended: Callable[[], None],
) -> None:
    """Serve the pages until Ctrl-C or SIGTERM.

    ``begun`` is called once the pages can be opened, and ``ended`` when the server ends; after SIGTERM this function
    does not return. Raises QueueError.
    """
    poller = Poller(Viewer(queue), interval, watched=_has_open_tab, state_of=lambda view: states(view.status))

    async def root() -> None:
        build_head()
        await ui.context.client.connected(timeout=60)
        poller.hurry()
        tab = Tab(queue, poller, dark=bool(await ui.run_javascript(DARK, timeout=30)))
        ui.context.client.on_delete(tab.cancel_advice)  # after the reconnect timeout
        build_frame(tab)
        ui.sub_pages(
            {
                "/": partial(fleet_page, tab),
                "/queue": partial(queue_page, tab),
                "/job/{name}": partial(job_page, tab),
                "/projects": partial(projects_page, tab),
                "/usage": partial(usage_page, tab),
                "/what-if": partial(what_if_page, tab),
            }
        )

    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        application,
        root=root,
        title="SageMaker queue",
        favicon="🚦",
        dark=None,
        show_welcome_message=False,
        reconnect_timeout=30,
    )
    application.router.on_startup.append(begun)
    application.router.on_shutdown.append(ended)
    config = uvicorn.Config(
        Guard(application, access),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        proxy_headers=False,
        lifespan="on",
    )
    uvicorn.Server(config).run(sockets=[listening])


def _has_open_tab() -> bool:
    return any(client.has_socket_connection for client in list(Client.instances.values()))
