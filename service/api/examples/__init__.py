"""An example of every call, as data: one JSON file a tag of the OpenAPI document, one entry an operation.

Belongs here: reading them. An entry may have ``query``, ``request`` (or, where there are several, ``requests``: each with a
``summary``, a ``value`` and perhaps a ``content_type``) and ``answer``, which belongs to the operation's first status. A
test runs all of them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import orjson

NAMES = {
    "batch_name": "invoices-nov",
    "job_id": "doc_7f31",
    "webhook_id": "erp",
    "message_id": "msg_0c8e1f6a7b2d4f3e9a5b6c7d8e9f0a1b",
    "delivery_id": "dlv_4711",
    "replay_id": "rpl_12",
    "key_id": "whkey_0e6f120d1e95d407e8cd",
    "asset": "docs.js",
}


@cache
def list_examples() -> dict[str, dict[str, Any]]:
    """Return every operation's example by the operation's name."""
    found: dict[str, dict[str, Any]] = {}
    for file in files(__name__).iterdir():
        if file.name.endswith(".json"):
            found.update(orjson.loads(file.read_bytes()))
    return found
