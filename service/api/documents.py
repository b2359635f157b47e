"""Health for load balancers, the OpenAPI document, and a page to browse it. No key is needed for these.

Belongs here: serving. Does not belong here: making the document (``openapi``).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from aiohttp import web

from service.api.answers import Health
from service.api.calls import Answer, Call
from service.api.problems import not_found

DOCUMENT = web.AppKey("openapi", bytes)
ASSETS = {
    "docs.html": "text/html; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
    "docs.css": "text/css; charset=utf-8",
    "docs.svg": "image/svg+xml",
}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@cache
def _asset(name: str) -> bytes:
    return files("service.api").joinpath("assets", name).read_bytes()


def _serve(name: str) -> Answer:
    headers = {"Content-Type": ASSETS[name], "Content-Security-Policy": PAGE_POLICY, "Cache-Control": "max-age=3600"}
    return Answer(200, _asset(name), headers)


async def healthz(call: Call) -> Answer:
    """Answer; the database is not asked."""
    del call
    return Answer(200, Health(status="ok"))


async def openapi(call: Call) -> Answer:
    """Serve the OpenAPI document."""
    return Answer(200, call.request.app[DOCUMENT])


async def page(call: Call) -> Answer:
    """Serve the page."""
    del call
    return _serve("docs.html")


async def asset(call: Call) -> Answer:
    """Serve what the page needs."""
    name = call.path["asset"]
    if name not in ASSETS:
        raise not_found("asset")
    return _serve(name)
