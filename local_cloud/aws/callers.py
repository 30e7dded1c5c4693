"""Access to the local cloud: programs of this machine may call it, and pages in a browser may not.

A browser lets any page send requests to 127.0.0.1. If the owner of a host name lets it point to 127.0.0.1, such
requests even look like requests to the page's own site. The headers show it: Origin, Sec-Fetch-Site, and the name in
Host.
"""

from collections.abc import Iterable

TOKEN_HEADER = "x-local-cloud-token"  # carries the token that opens endpoints without another check
_NAMES = ("127.0.0.1", "localhost")


def foreign(headers: Iterable[tuple[str, str]], port: int) -> str | None:
    """Return why a request does not come from a program that was given the address; None if it may.

    :param headers: names in lower case.
    """
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or hosts[0].lower() not in [f"{name}:{port}" for name in _NAMES]:
        return "the local cloud is asked under another name than 127.0.0.1 or localhost"
    for name, value in headers:
        if name == "origin" or (name == "sec-fetch-site" and value != "none"):
            return "a page in a browser may not call the local cloud"
    return None
