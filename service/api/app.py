"""The admin API as one aiohttp application.

Belongs here: putting parts, routes and middleware together. Does not belong here: listening (``service.app``).
"""

from __future__ import annotations

import orjson
from aiohttp import web

from service.api.dispatch import Dispatcher
from service.api.documents import DOCUMENT
from service.api.openapi import build_document
from service.api.operations import OPERATIONS
from service.api.parts import Parts
from service.api.problems import problems
from service.api.routes import Routes

MAX_BODY = 4 * 1024 * 1024 + 1024


def build_api(parts: Parts) -> web.Application:
    """Build the application; whoever runs it owns its life. All paths go through one handler, on the raw path."""
    app = web.Application(middlewares=[problems], client_max_size=MAX_BODY)
    app[DOCUMENT] = orjson.dumps(build_document(OPERATIONS))
    app.router.add_route("*", "/{path:(?s:.*)}", Dispatcher(parts, Routes(OPERATIONS)).handle)
    return app
