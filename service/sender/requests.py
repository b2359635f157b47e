"""A request as bytes, head and body in one piece, so that one system call sends it (RFC 9112 3)."""

from __future__ import annotations

from service.domain.outbound import OutboundRequest, compile_headers

# What delivery sets on every attempt. Other names take the careful way.
_PLAIN_NAMES = frozenset(
    {
        "content-type",
        "traceparent",
        "user-agent",
        "webhook-attempt",
        "webhook-event-type",
        "webhook-generation",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)


def render_request(request: OutboundRequest) -> bytes:
    """The bytes to write; raises ValueError for a header that could break out of its line."""
    body = request.body
    head_end = b"accept-encoding: identity\r\ncontent-length: %d\r\n\r\n" % len(body)
    return b"".join((request.target.head, request.block, _render_headers(request), head_end, body))


def _render_headers(request: OutboundRequest) -> bytes:
    headers = request.headers
    if not headers:
        return b""
    lines = [f"{name}: {value}\r\n" for name, value in headers if name in _PLAIN_NAMES]
    text = "".join(lines)
    if len(lines) == len(headers) == text.count("\n") == text.count("\r") and "\0" not in text:
        return text.encode()
    return compile_headers(headers)
