"""The names of things, so that one cannot be passed for another."""

from __future__ import annotations

from typing import NewType

TenantId = NewType("TenantId", str)
JobId = NewType("JobId", str)
BatchName = NewType("BatchName", str)
IncarnationId = NewType("IncarnationId", str)  # what the wire calls ``batch.id``
WebhookId = NewType("WebhookId", str)  # public, unique within a tenant
MessageId = NewType("MessageId", str)  # ``msg_…``, the ``webhook-id`` header
DeliveryId = NewType("DeliveryId", int)  # shown as ``dlv_<number>``
BatchKey = NewType("BatchKey", int)  # row key of one incarnation
WebhookKey = NewType("WebhookKey", int)  # row key of one registration, never used again
