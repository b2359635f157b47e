"""Short forms for the entries of the table.

Belongs here: what calls of one kind have in common. Does not belong here: any call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from service.api import answers
from service.api.calls import Handle, Kind, Operation, Role


def get(path: str, name: str, summary: str, handle: Handle, answer: Any, **more: Any) -> Operation:
    """Build a read."""
    return Operation("GET", path, name, summary, handle, answer=answer, **more)


def write(method: str, path: str, name: str, summary: str, handle: Handle, **more: Any) -> Operation:
    """Build a write: one transaction, with its audit entry and its idempotent answer."""
    return Operation(method, path, name, summary, handle, Role.WRITE, Kind.WRITE, **more)


def remove(path: str, name: str, summary: str, handle: Handle, **more: Any) -> Operation:
    """Build a write that answers 204."""
    return Operation("DELETE", path, name, summary, handle, Role.WRITE, Kind.WRITE, statuses=(204,), **more)


def change(path: str, name: str, summary: str, handle: Handle, body: Any, **more: Any) -> Operation:
    """Build a ``POST`` whose body may be left out."""
    return write("POST", path, name, summary, handle, body=body, body_required=False, **more)


def test(path: str, name: str, handle: Handle) -> Operation:
    """Build a test send."""
    return Operation(
        "POST", path, name, "Send one test message", handle, Role.WRITE, Kind.TEST,
        answer=answers.TestAnswer, statuses=(200, 202),
    )  # fmt: skip


def for_operators(operation: Operation) -> Operation:
    """Keep a call to operators; it is about no one tenant."""
    return replace(operation, role=Role.OPERATOR, tenant=False, tag="operator")


def tagged(tag: str, *operations: Operation) -> tuple[Operation, ...]:
    """Put calls under one heading of the document."""
    return tuple(replace(operation, tag=tag) for operation in operations)
