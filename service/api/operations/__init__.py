"""The table of all calls: the router, the checks and the OpenAPI document are made from it.

Belongs here: one entry a call, a module for each subject. Does not belong here: any logic.
"""

from __future__ import annotations

from service.api.calls import Operation
from service.api.operations import batches, deliveries, operators, others, webhooks

OPERATIONS: tuple[Operation, ...] = (
    *batches.CALLS,
    *webhooks.CALLS,
    *deliveries.CALLS,
    *operators.CALLS,
    *others.CALLS,
)
