"""Who may call the local cloud at all: programs of this machine, and no page in somebody's browser.

A browser lets any page send requests to 127.0.0.1, and a name that its owner lets point there makes them look like the
page's own. It says so: by Origin, by Sec-Fetch-Site, and by the name in Host.
"""

from collections.abc import Iterable

TOKEN_HEADER = "x-local-cloud-token"  # with what opens the endpoints that have no other check
_NAMES = ("127.0.0.1", "localhost")


def foreign(headers: Iterable[tuple[str, str]], port: int) -> str | None:
    """Why a request does not come from a program that was told of the local cloud; None if it may.

    :param headers: names in lower case.
    """
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or hosts[0].lower() not in [f"{name}:{port}" for name in _NAMES]:
        return "the local cloud is asked under another name than 127.0.0.1 or localhost"
    for name, value in headers:
        if name == "origin" or (name == "sec-fetch-site" and value != "none"):
            return "a page in a browser may not call the local cloud"
    return None
