"""The names of things, so that one cannot be passed for another."""

from __future__ import annotations

import unicodedata
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


MAX_NAME = 255


def is_name(text: str) -> bool:
    """Tell whether a text may name a tenant, batch or job: 1-255 code points, none Cc or Cs, not ``.`` or ``..``."""
    if not 1 <= len(text) <= MAX_NAME or text in {".", ".."}:
        return False
    return not any(unicodedata.category(character) in {"Cc", "Cs"} for character in text)
