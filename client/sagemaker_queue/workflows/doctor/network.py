"""Check the network path to the queue's API: name resolution, connection, certificate and clock."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import requests
from requests.utils import get_environ_proxies, select_proxy

from sagemaker_queue.workflows.doctor.findings import Finding, failed, ok, skipped

DNS, CONNECTION, CLOCK = "dns", "connection", "clock"
SECONDS = 5.0  # timeout of each request
SIGNATURE_SECONDS = 300  # AWS accepts a signature if its time is at most this far from AWS's clock
# https://<api-id>.execute-api.<region>.amazonaws.com; the API's id may be followed by -<vpce-id>.
_OWN_ADDRESS = re.compile(r"(?P<api>[a-z0-9]{10})(?P<vpce>-vpce-[0-9a-f]+)?\.execute-api\.[a-z0-9-]+\.amazonaws\.com.*")
_ENDPOINTS_ADDRESS = re.compile(r"vpce-[0-9a-f]+-[a-z0-9-]+\.execute-api\.[a-z0-9-]+\.vpce\.amazonaws\.com.*")
_TO_THE_VPC = (
    "Go through the VPC endpoint: its operator knows the address https://<api-id>-<vpce-id>.execute-api..., which needs"
    " no private DNS. From outside the VPC, connect to its VPN first."
)


@dataclass(frozen=True)
class Address:
    """The host that requests are sent to: the queue's own host, or a proxy."""

    host: str
    port: int
    tls: bool
    proxy: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the host that requests to a URL are sent to: a proxy of the environment, or else the URL's host."""
        target = urlsplit(url)
        proxy = select_proxy(url, get_environ_proxies(url))
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else target
        tls = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), tls, bool(proxy))

    def __str__(self) -> str:
        """Return the host only: the rest of a proxy's address may contain a password."""
        return f"the proxy {self.host}" if self.proxy else self.host


def is_amazons(host: str) -> bool:
    """Return whether a host belongs to API Gateway."""
    return bool(_OWN_ADDRESS.fullmatch(host) or is_endpoints(host))


def is_endpoints(host: str) -> bool:
    """Return whether a host is a VPC endpoint, which serves all APIs."""
    return bool(_ENDPOINTS_ADDRESS.fullmatch(host))


def check_dns(address: Address) -> Finding:
    """Resolve the host's name. The step also fails if an API's own name resolves to a public address."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:  # UnicodeError: a name with an empty or too long part
        reason = getattr(error, "strerror", None) or error
        return failed(DNS, f"The name {address.host} cannot be resolved: {reason}.", _unresolved(address))
    addresses = ", ".join(sorted(found))
    public = [ip for ip in found if ipaddress.ip_address(ip.partition("%")[0]).is_global]
    host_match = _OWN_ADDRESS.fullmatch(address.host)
    if public and host_match and not address.proxy:
        return failed(
            DNS,
            f"{address.host} is {addresses}: a public address, where a private API does not answer.",
            _TO_THE_VPC if not host_match["vpce"] else "Use the DNS of the VPC: the name of an endpoint is private.",
        )
    return ok(DNS, f"{address} is {addresses}.")


def _unresolved(address: Address) -> str:
    if address.proxy:
        return "Correct HTTPS_PROXY, or name the queue's host in NO_PROXY."
    if is_amazons(address.host):
        return f"Is the address spelt right, and does the API still exist? {_TO_THE_VPC}"
    return "Correct the address: smq config set url https://..."


def check_connection(address: Address) -> Finding:
    """Connect to the host, and verify its certificate if the connection uses TLS."""
    where = f"{address}, port {address.port}"
    try:
        with socket.create_connection((address.host, address.port), SECONDS) as connection:
            if not address.tls:
                return ok(CONNECTION, f"{where} answers.")
            # This context has only the system's certificates. `check_clock` uses the library `requests`, which
            # also reads REQUESTS_CA_BUNDLE.
            with ssl.create_default_context().wrap_socket(connection, server_hostname=address.host) as tls:
                return ok(CONNECTION, f"{where} answers, by {tls.version()}.")
    except ssl.SSLCertVerificationError as error:
        return failed(
            CONNECTION,
            f"The certificate of {where} is not good: {error.verify_message}.",
            "Is something on the way opening TLS? Name its certificates in REQUESTS_CA_BUNDLE and AWS_CA_BUNDLE, and"
            " use the host's own name: an IP address or an alias has no certificate.",
        )
    except ssl.SSLError as error:
        return failed(
            CONNECTION,
            f"{where} does not speak TLS: {error.reason or error}.",
            "Is the address right? The queue's is https://, a local cloud's http://.",
        )
    except socket.timeout:
        return failed(CONNECTION, f"{where} does not answer within {SECONDS:.0f} s.", _unreachable(address))
    except OSError as error:
        return failed(CONNECTION, f"{where} cannot be reached: {error.strerror or error}.", _unreachable(address))


def _unreachable(address: Address) -> str:
    if address.proxy:
        return "Correct HTTPS_PROXY, or name the queue's host in NO_PROXY: a private API is seldom behind a proxy."
    if is_amazons(address.host):
        return (
            "You are outside the VPC, or the endpoint's security group does not let you in: it needs port 443, inbound,"
            " from your network or security group. From a laptop, connect to the VPN first."
        )
    return "Does the queue run there, and does no firewall stand between?"


def check_clock(url: str, now: Callable[[], float] = time.time) -> Finding:
    """Compare the Date of the server's answer with the local clock.

    The request is not signed, since a refusal also has a Date.
    """
    try:
        response = requests.get(url, timeout=SECONDS, allow_redirects=False)
    except requests.RequestException as error:
        return failed(
            CLOCK,
            f"{urlsplit(url).hostname} does not speak HTTP ({type(error).__name__}).",
            "Is it the queue's address, https:// and all, and does nothing on the way open TLS (REQUESTS_CA_BUNDLE)?",
        )
    try:
        theirs = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return skipped(CLOCK, "The server does not say what time it is.")
    ahead = now() - theirs
    if abs(ahead) > SIGNATURE_SECONDS:
        return failed(
            CLOCK,
            f"The clock here is {abs(ahead):.0f} s {'fast' if ahead > 0 else 'slow'}: AWS takes no signature that is"
            f" more than {SIGNATURE_SECONDS} s off.",
            "Set the clock (timedatectl set-ntp true).",
        )
    return ok(
        CLOCK,
        "The clock here is right."
        if abs(ahead) < 2
        else f"The clock here is {abs(ahead):.0f} s off, which is no harm.",
    )
