"""Short forms for the entries of the table.

Belongs here: what calls of one kind have in common. Does not belong here: any call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from service.api import answers, models
from service.api.calls import Answer, Call, Handle, Kind, Operation
from service.store.keys import Role


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


class WebhookHandlers(Protocol):
    """A module with the calls that every kind of webhook has."""

    async def test(self, call: Call) -> Answer:
        """Send one test message."""

    async def rotate(self, call: Call) -> Answer:
        """Make a new secret."""

    async def revoke(self, call: Call) -> Answer:
        """End the overlap of a rotation."""

    async def enable(self, call: Call) -> Answer:
        """Release deliveries, one trial first."""

    async def pause(self, call: Call) -> Answer:
        """Hold deliveries."""


def of_webhook(path: str, name: str, handlers: WebhookHandlers) -> tuple[Operation, ...]:
    """Build the calls that every kind of webhook has, below its ``path``; their names begin with ``name``."""
    shown = answers.AccountWebhookDetail
    return (
        Operation(
            "POST", f"{path}/test", f"{name}_test", "Send one test message", handlers.test, Role.WRITE, Kind.TEST,
            answer=answers.TestAnswer, statuses=(200, 202),
        ),
        change(
            f"{path}/rotate-secret", f"{name}_rotate_secret", "Make a new secret", handlers.rotate, models.RotateSecret,
            answer=answers.SecretAnswer,
        ),
        write(
            "POST", f"{path}/revoke-previous-secret", f"{name}_revoke_previous_secret", "End the overlap of a rotation",
            handlers.revoke, statuses=(204,),
        ),
        write(
            "POST", f"{path}/enable", f"{name}_enable", "Release deliveries, one trial first", handlers.enable,
            answer=shown,
        ),
        write("POST", f"{path}/pause", f"{name}_pause", "Hold deliveries", handlers.pause, answer=shown),
    )  # fmt: skip


def for_operators(operation: Operation) -> Operation:
    """Keep a call to operators; it is about no one tenant."""
    return replace(operation, role=Role.OPERATOR, tenant=False, tag="operator")


def tagged(tag: str, *operations: Operation) -> tuple[Operation, ...]:
    """Put calls under one heading of the document."""
    return tuple(replace(operation, tag=tag) for operation in operations)
