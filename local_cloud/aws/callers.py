"""Access to the local cloud: programs of this machine may call it, and pages in a browser may not.

A browser lets any page send requests to 127.0.0.1. The owner of a host name can also let the name point to 127.0.0.1.
Then the browser treats a request to the local cloud as a request to the page's own site (DNS rebinding). Three headers
reveal such requests: Origin, Sec-Fetch-Site, and Host, which contains the foreign host name.
"""

from collections.abc import Iterable

TOKEN_HEADER = "x-local-cloud-token"  # carries the token for ministack's own endpoints, which check no credentials
_NAMES = ("127.0.0.1", "localhost")


def foreign(headers: Iterable[tuple[str, str]], port: int) -> str | None:
    """Return the reason to refuse a request that a page in a browser may have sent; None if the request is allowed.

    :param headers: names in lower case.
    """
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or hosts[0].lower() not in [f"{name}:{port}" for name in _NAMES]:
        return "the Host header names another host than 127.0.0.1 or localhost"
    for name, value in headers:
        if name == "origin" or (name == "sec-fetch-site" and value != "none"):
            return "a page in a browser may not call the local cloud"
    return None
