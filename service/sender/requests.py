"""A request as bytes, head and body in one piece, so that one system call sends it (RFC 9112 3)."""

from __future__ import annotations

from service.domain.outbound import OutboundRequest


def render_request(request: OutboundRequest) -> bytes:
    """The bytes to write: the lines that only the sender writes stand before and after the request's own."""
    body = request.body
    head_end = b"accept-encoding: identity\r\ncontent-length: %d\r\n\r\n" % len(body)
    return b"".join((request.target.head, request.headers, head_end, body))
