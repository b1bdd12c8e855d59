"""The choice of endpoints: which of them a node advertises, and which of a peer's it uses. Knows no ZeroMQ."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from amfs.errors import UsageError
from amfs.host.processes import same_machine

_ANY = {"0.0.0.0": socket.AF_INET, "[::]": socket.AF_INET6, "*": socket.AF_INET}


def split(endpoint: str) -> tuple[str, str]:
    """``tcp://HOST:PORT`` as (host, port)."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host, port


def listen_endpoint(text: str) -> str:
    """The endpoint for what a user writes after --tcp: ADDRESS, ADDRESS:PORT or a whole endpoint. Raises UsageError."""
    text = text.removeprefix("tcp://")
    bare_v6 = text.count(":") > 1 and not text.startswith("[")
    host, port = (f"[{text}]", "0") if bare_v6 else (text, "0") if ":" not in text or text.endswith("]") else split(text)
    if not host or not (port == "*" or (port.isdecimal() and int(port) < 65536)):
        raise UsageError(f"'{text}' is not an address to listen on: give ADDRESS or ADDRESS:PORT, such as 10.0.0.1:5555 or 0.0.0.0")
    return f"tcp://{host}:{0 if port == '*' else port}"


def loopback() -> str:
    """The address of this host for itself: a host may have none of IPv4."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError:
            return "::1"
    return "127.0.0.1"


def outward_address(family: int = socket.AF_INET) -> str:
    """This machine's address as others see it: that of the interface with the default route, else what its name resolves to."""
    probe = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"  # documentation networks; a UDP connect sends nothing
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as outward:
            outward.connect((probe, 9))
            return str(outward.getsockname()[0])
    except OSError:
        try:
            return str(socket.getaddrinfo(socket.gethostname(), None, family)[0][4][0])
        except OSError:
            return "127.0.0.1" if family == socket.AF_INET else "::1"


def advertised(endpoint: str) -> str:
    """A bound endpoint as others can reach it: "all interfaces" becomes the outward address."""
    host, port = split(endpoint)
    family = _ANY.get(host)
    if family is None:
        return endpoint
    address = outward_address(family)
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def pick(endpoints: Sequence[str], host: str, own_host: str) -> str | None:
    """The first endpoint usable from here: ipc only on the same host (if the host is unknown: if its directory is here; in another
    namespace of the same machine: if the socket is seen there)."""
    for endpoint in endpoints:
        path = endpoint.removeprefix("ipc://")
        if path == endpoint or host == own_host:
            return endpoint
        if os.path.isdir(os.path.dirname(path)) if not host else same_machine(host, own_host) and os.path.exists(path):
            return endpoint
    return None


def reachable(endpoints: Sequence[str], host: str, own_host: str) -> tuple[str, ...]:
    """The endpoints of a process on ``host`` that one on ``own_host`` can use: a path of another host may exist here, and be another's."""
    return tuple(endpoint for endpoint in endpoints if host == own_host or not endpoint.startswith("ipc://"))
