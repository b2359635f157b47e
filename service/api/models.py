"""What callers send: one model a body, one a query. The OpenAPI document is made from these.

Belongs here: fields and their types. Does not belong here: what the service answers (``answers``).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from service.api.fields import (
    CustomHeaders,
    DeliveryState,
    Description,
    Globs,
    InFlight,
    InstantIn,
    Name,
    NameGlobs,
    PatchedHeaders,
    Query,
    RateLimit,
    Request,
    Secret,
    Settle,
    Steps,
    Text,
    Timeout,
    Url,
)

Scope = Literal["batch", "job"]
Signing = Literal["hmac", "ed25519"]
RoleName = Literal["read", "write", "ingest", "operator"]
_TENANT: Any = Field(None, validation_alias=AliasChoices("tenant_id", "tenant"))


class BatchWebhookPut(Request):
    """The webhook of one batch. What is left out takes the service's default."""

    url: Url
    batch_id: Name | None = None
    description: Description | None = None
    secret: Secret | None = None
    custom_headers: CustomHeaders | None = None
    settle_seconds: Settle | None = None
    notify_if_done: bool = True
    retry_schedule: Steps | None = None
    timeout_seconds: Timeout | None = None
    max_in_flight: InFlight | None = None
    rate_limit: RateLimit | None = None
    signing: Signing = "hmac"


class WebhookPost(Request):
    """An account webhook."""

    url: Url
    id: Name | None = None
    description: Description | None = None
    secret: Secret | None = None
    custom_headers: CustomHeaders | None = None
    retry_schedule: Steps | None = None
    timeout_seconds: Timeout | None = None
    max_in_flight: InFlight | None = None
    rate_limit: RateLimit | None = None
    signing: Signing = "hmac"
    event_types: Globs | None = Field(None, description="Globs; omitted or empty: reached only by id.")
    scopes: Annotated[list[Scope], Field(max_length=2)] | None = None
    batch_names: NameGlobs | None = None


class WebhookPatch(Request):
    """A JSON merge patch of an account webhook: what is absent stays, null takes the default."""

    url: Url | None = None
    description: Description | None = None
    secret: Secret | None = Field(None, description="A live one, which changes nothing; use rotate-secret for another.")
    custom_headers: PatchedHeaders | None = None
    retry_schedule: Steps | None = None
    timeout_seconds: Timeout | None = None
    max_in_flight: InFlight | None = None
    rate_limit: RateLimit | None = None
    signing: Signing | None = None
    event_types: Globs | None = None
    scopes: Annotated[list[Scope], Field(max_length=2)] | None = None
    batch_names: NameGlobs | None = None


class RotateSecret(Request):
    """A rotation; the old secret stays valid for the overlap."""

    overlap_seconds: Annotated[int, Field(ge=0, le=604_800)] = 86_400
    secret: Secret | None = None
    force: bool = False


class Renotify(Request):
    """The newest finish again."""

    force: bool = False
    new_id: bool = False


class Redeliver(Request):
    """One extra attempt."""

    force: bool = False


class ReplayPost(Request):
    """A replay of past messages to one webhook."""

    since: Annotated[
        InstantIn, Field(description="By when the message was made; of a run without one, by when it ended.")
    ]
    until: InstantIn | None = None
    which: Literal["failed", "held", "missing", "all"]
    rate: Annotated[int, Field(ge=1, le=1000, description="Deliveries a second.")] = 10
    dry_run: bool = False
    force: bool = False


class KeyPost(Request):
    """A new API key. Operator keys belong to no tenant; all others belong to one."""

    tenant_id: Name | None = Field(None, description="Whose key it is; absent: the tenant that X-Tenant-ID names.")
    roles: Annotated[list[RoleName], Field(min_length=1, max_length=4)]
    description: Description | None = None
    expires_at: InstantIn | None = None


class PausePost(Request):
    """Stop claims for one tenant, one host, or everything."""

    tenant_id: Name | None = _TENANT
    host: Annotated[Text, Field(min_length=1, max_length=253)] | None = None
    all: bool = False
    reason: Description | None = None


class NoQuery(Query):
    """No parameters."""


class Page(Query):
    """A page of a list."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=600)] | None = None


class Reveal(Query):
    """How URLs are shown."""

    reveal: Literal["url"] | None = None


class WebhookPage(Page):
    """A page of webhooks."""

    kind: Literal["account", "batch", "one_shot"] | None = None
    reveal: Literal["url"] | None = None


class DeliveryPage(Page):
    """A page of deliveries."""

    webhook: Name | None = None
    batch: Name | None = None
    job: Name | None = None
    state: DeliveryState | None = None
    type: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    since: InstantIn | None = None
    until: InstantIn | None = None


class KeyPage(Page):
    """A page of keys."""

    tenant_id: Name | None = None


class Top(Query):
    """What hurts most."""

    by: Literal["pending", "oldest", "failing", "slots"]
    limit: Annotated[int, Field(ge=1, le=200)] = 20


class PauseDelete(Query):
    """Which operator pause ends."""

    tenant_id: Name | None = _TENANT
    host: Annotated[Text, Field(min_length=1, max_length=253)] | None = None
    all: bool = False
