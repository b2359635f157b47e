"""Calls about messages and deliveries, and the one that takes events."""

from __future__ import annotations

from service.api import answers, deliveries, events, messages, models
from service.api.calls import KIB, Kind, Operation
from service.api.operations.building import change, get, remove, tagged, write
from service.store.keys import Role

DELIVERY = "/v1/deliveries/{delivery_id}"
EVENTS_LIMIT = 4 * KIB * KIB

CALLS: tuple[Operation, ...] = (
    *tagged(
        "deliveries",
        get("/v1/messages/{message_id}", "message_get", "Show a message", messages.get, answers.Message),
        remove("/v1/messages/{message_id}/body", "message_expunge", "Destroy the body of a message", messages.expunge),
        get(
            "/v1/deliveries",
            "delivery_list",
            "List deliveries",
            deliveries.list_,
            answers.DeliveryList,
            query=models.DeliveryPage,
        ),
        get(DELIVERY, "delivery_get", "Show a delivery and its attempts", deliveries.get, answers.DeliveryDetail),
        change(
            f"{DELIVERY}/redeliver",
            "delivery_redeliver",
            "One extra attempt now",
            deliveries.redeliver,
            models.Redeliver,
            answer=answers.Delivery,
            statuses=(202,),
        ),
        write(
            "POST",
            f"{DELIVERY}/cancel",
            "delivery_cancel",
            "Cancel a waiting delivery",
            deliveries.cancel,
            answer=answers.Delivery,
        ),
    ),
    *tagged(
        "events",
        Operation(
            "POST",
            "/v1/events",
            "events_post",
            "Take job events",
            events.post,
            Role.INGEST,
            Kind.EVENTS,
            body_limit=EVENTS_LIMIT,
            answer=answers.EventResults,
            statuses=(202,),
        ),
    ),
)
