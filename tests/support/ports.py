"""Ports that stay a test's own: free when they are named, and nobody else's until somebody listens there."""

from __future__ import annotations

import socket
from collections import deque

KEPT = 200
_reserved: deque[socket.socket] = deque()


def find_free_port() -> int:
    """A port where nobody listens, reserved for whoever is told of it.

    A socket that is bound and does not listen keeps the kernel from giving the port to others, for which it looks
    free again between two starts of a server. A server that sets SO_REUSEADDR, as all of them do, may listen there all
    the same; connections are refused until then. The oldest reservations are given up: their tests are long over.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    _reserved.append(sock)
    while len(_reserved) > KEPT:
        _reserved.popleft().close()
    return sock.getsockname()[1]
