"""What the service tells about its own work: webhooks that were disabled, deliveries that were given up.

Belongs here: the types, ids and data of operational messages (chapter 3, "Body"). Does not belong here: who is subscribed
(``webhooks.matches``) and noticing that something happened (``upkeep.operational``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from service.domain.attempts import describe_for_tenants
from service.domain.identity import digest
from service.domain.messages import Encoder, format_instant

WEBHOOK_DISABLED = "webhook.disabled"
DELIVERY_EXHAUSTED = "delivery.exhausted"
SOURCE = "webhookd"


@dataclass(frozen=True, slots=True)
class WebhookDisabled:
    """A webhook that was disabled, once per outage. ``untold``: by operational deliveries, which cause no others."""

    tenant_id: str
    webhook_id: str
    url_host: str
    reason: str
    at: datetime
    untold: bool = False

    @property
    def type(self) -> str:
        """The message type."""
        return WEBHOOK_DISABLED

    @property
    def message_id(self) -> str:
        """The same for the same outage of the same webhook."""
        return "msg_" + digest("disabled", self.tenant_id, self.webhook_id, str(format_instant(self.at)))

    @property
    def data(self) -> dict[str, object]:
        """What a subscriber is told."""
        return {
            "webhook_id": self.webhook_id,
            "url_host": self.url_host,
            "reason": self.reason,
            "at": format_instant(self.at),
        }


@dataclass(frozen=True, slots=True)
class DeliveryExhausted:
    """A delivery whose schedule ended without a success. Either ``batch`` or ``job_id`` says what it was about."""

    tenant_id: str
    webhook_id: str
    url_host: str
    reason: str
    at: datetime
    delivery_id: str
    about_message_id: str
    batch: str | None
    job_id: str | None
    attempts: int
    last_error: str | None

    @property
    def type(self) -> str:
        """The message type."""
        return DELIVERY_EXHAUSTED

    @property
    def message_id(self) -> str:
        """The same for the same delivery, however often it is given up."""
        return "msg_" + digest("exhausted", self.tenant_id, self.delivery_id)

    @property
    def data(self) -> dict[str, object]:
        """What a subscriber is told."""
        about = {"batch": self.batch} if self.batch is not None else {"job_id": self.job_id}
        return {
            "webhook_id": self.webhook_id,
            "url_host": self.url_host,
            "reason": self.reason,
            "at": format_instant(self.at),
            "delivery_id": self.delivery_id,
            "message_id": self.about_message_id,
            **about,
            "attempts": self.attempts,
            "last_error": self.last_error,
        }


OperationalEvent = WebhookDisabled | DeliveryExhausted


def as_tenants_see_it(event: OperationalEvent) -> OperationalEvent:
    """Return the event without what only operators may know."""
    if isinstance(event, WebhookDisabled):
        return event
    return replace(event, last_error=describe_for_tenants(event.last_error))


def build_operational_body(event: OperationalEvent, encode: Encoder) -> bytes:
    """Return the body of an operational message."""
    return encode({"type": event.type, "timestamp": format_instant(event.at), "data": event.data})
