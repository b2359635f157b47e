"""The admin API as one aiohttp application.

Belongs here: putting parts, routes and middleware together. Does not belong here: listening (``service.app``).
"""

from __future__ import annotations

import orjson
from aiohttp import HttpVersion11, web

from service.api.dispatch import Dispatcher
from service.api.documents import DOCUMENT
from service.api.openapi import build_document
from service.api.operations import OPERATIONS
from service.api.parts import Parts
from service.api.problems import SECURITY_HEADERS, Problem, problems, render
from service.api.routes import Routes

MAX_BODY = 4 * 1024 * 1024 + 1024


def build_api(parts: Parts) -> web.Application:
    """Build the application; whoever runs it owns its life. All paths go through one handler, on the raw path."""
    app = web.Application(middlewares=[problems], client_max_size=MAX_BODY)
    app[DOCUMENT] = orjson.dumps(build_document(OPERATIONS))
    handle = Dispatcher(parts, Routes(OPERATIONS)).handle
    app.router.add_route("*", "/{path:(?s:.*)}", handle, expect_handler=_meet_expectation)
    return app


async def _meet_expectation(request: web.Request) -> web.StreamResponse | None:
    """Let a body come (``100-continue``); any other expectation is refused, as everything is, with a problem."""
    if request.version < HttpVersion11:
        return None
    if request.headers["Expect"].strip().lower() != "100-continue":
        response = render(Problem(417, "expectation_failed", "The only expectation that is met is 100-continue."))
        response.headers.update(SECURITY_HEADERS)
        return response
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer is still to come
    return None
