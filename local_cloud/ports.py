"""Free TCP ports of this machine, for programs that take a number and not a socket."""

import secrets
import socket

# A socket that names no port gets one from 32,768 on Linux, and from 49,152 on other systems. So no such socket takes
# a port of this range between the choice of the port and its use.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 1000


def free_ports(count: int = 1) -> int:
    """Return the first of `count` consecutive ports of 127.0.0.1 that are free.

    The choice is random, so processes that choose at the same time hardly ever get the same port. Raise OSError if
    no free ports are found.
    """
    for _ in range(_TRIES):
        first = _FIRST + secrets.randbelow(_LAST - _FIRST)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise OSError(f"{_TRIES} tries did not find {count} free ports from {_FIRST} to {_LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
