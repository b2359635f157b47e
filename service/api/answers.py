"""What the service answers: one model an object. The OpenAPI document is made from these.

Belongs here: the fields of answers. Does not belong here: filling them (``views``) and what callers send (``models``).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.fields import DeliveryState, Instant

Status = Literal["queued", "processing", "succeeded", "failed", "canceled"]


class Model(BaseModel):
    """An object of an answer."""

    model_config = ConfigDict(frozen=True)


class Webhook(Model):
    """A registration. Secrets and the values of custom headers are never shown."""

    webhook_id: str
    kind: Literal["batch", "account", "one_shot"]
    url: str | None = Field(description="Query masked unless `reveal=url`; null when it cannot be decrypted.")
    description: str | None
    custom_header_names: list[str]
    signing: Literal["hmac", "ed25519"]
    public_key: str | None = Field(description="`whpk_…` of an ed25519 webhook.")
    retry_schedule: list[int] | None = Field(description="null: the service's default.")
    timeout_seconds: float | None
    max_in_flight: int | None
    rate_limit: int | None
    state: Literal["enabled", "paused", "disabled"]
    reason: str | None = Field(description="`gone` or `failing` for a disabled webhook.")
    state_detail: str
    state_at: Instant
    held_until: Instant | None = Field(description="The receiver asked for rest until then.")
    last_error: str | None
    last_success_at: Instant | None
    last_failure_at: Instant | None
    revision: int
    created_at: Instant
    updated_at: Instant


class AccountWebhook(Webhook):
    """An account webhook (batch and one-shot webhooks have empty filters)."""

    event_types: list[str]
    scopes: list[str]
    batch_names: list[str]


class AccountWebhookDetail(AccountWebhook):
    """One webhook with its queue. ``secret`` is there only where it is shown, once."""

    pending_count: int = Field(description="Unfinished deliveries, counted up to 10,000.")
    capped: bool
    secret: str | None = None


class BatchWebhook(Webhook):
    """The webhook of one batch."""

    batch: str
    batch_id: str
    settle_seconds: int | None
    notify_if_done: bool
    all_done: bool
    generation: int
    last_delivered_generation: int | None
    pending_count: int
    capped: bool


class BatchWebhookRegistered(BatchWebhook):
    """What a registration came to."""

    result: Literal["created", "unchanged", "updated", "url_changed"]
    delivery_queued: bool
    delivery_reason: str = Field(description="Why a delivery of the newest finish was queued, or was not.")
    secret: str | None = Field(None, description="Shown this once, when the registration is new.")


class SecretAnswer(Model):
    """A new secret, shown this once."""

    secret: str
    previous_valid_until: Instant | None
    public_key: str | None = None


class TestAnswer(Model):
    """What a test came to."""

    delivery_id: str
    state: DeliveryState
    status: int | None = Field(None, description="The receiver's status code.")
    class_: str | None = Field(None, serialization_alias="class", description="What it came to, as on attempts.")
    latency_ms: int | None = Field(None, description="Rounded to 100 ms.")


class Counts(Model):
    """Members by how they ended."""

    total: int
    succeeded: int
    failed: int
    canceled: int


class Batch(Model):
    """A batch, for those who poll."""

    name: str
    batch_id: str
    status: Status
    all_done: bool
    generation: int
    last_delivered_generation: int | None
    counts: Counts
    declared_total: int | None
    created_at: Instant | None
    started_at: Instant | None
    completed_at: Instant | None
    ended_at: Instant | None


class BatchDetail(Batch):
    """One batch."""

    oldest_unfinished_seconds: float | None = Field(description="Age of the oldest member that has not ended.")


class Job(Model):
    """The current run of a job."""

    job_id: str
    generation: int
    status: Status | None = Field(description="null: known, but not queued yet.")
    source_status: str | None
    stage: str | None
    kind: str | None
    subject_id: str | None
    subject_status: str | None
    attempts: int
    error_code: str | None
    error_message: str | None
    created_at: Instant | None
    started_at: Instant | None
    completed_at: Instant | None
    batch_generation: int | None
    result_url: str | None
    previous_job_id: str | None
    webhook_id: str | None


class Delivery(Model):
    """One message for one webhook."""

    delivery_id: str
    webhook_id: str
    message_id: str
    type: str
    scope: Literal["batch", "job", "none"]
    batch: str | None
    batch_id: str | None
    job_id: str | None
    generation: int
    state: DeliveryState
    reason: str | None
    origin: Literal["ordinary", "test", "replay", "operational"] = Field(description="What it was made for.")
    attempt_count: int = Field(description="All that were ever made; a schedule that starts over goes on counting.")
    created_at: Instant
    next_attempt_at: Instant | None
    finished_at: Instant | None
    last_class: str | None
    last_error: str | None


class Attempt(Model):
    """One POST."""

    number: int = Field(description="From 1, growing; the receiver saw it as `webhook-attempt`.")
    started_at: Instant
    duration_ms: int | None
    host: str | None
    class_: str = Field(serialization_alias="class")
    status: int | None
    detail: str | None
    flags: list[str]
    answer: str | None = Field(description="At most 4 KiB of the answer, escaped.")
    next_attempt_at: Instant | None
    superfluous: bool = Field(description="Recorded, but without effect on the delivery's schedule.")


class DeliveryDetail(Delivery):
    """One delivery with its newest attempts, oldest first."""

    attempts: list[Attempt]


class JobDetail(Job):
    """One job with its newest deliveries."""

    batch: str | None
    batch_id: str | None
    deliveries: list[Delivery]


class Message(Model):
    """A message: what is sent, byte for byte, as text."""

    message_id: str
    type: str
    scope: Literal["batch", "job", "none"]
    generation: int
    source: str
    job_id: str | None
    finished_at: Instant
    created_at: Instant
    size: int
    renotified: bool
    expunged_at: Instant | None
    body: str | None


class Renotified(Model):
    """A finish on its way again."""

    message_id: str
    generation: int
    deliveries: int


class EventResult(Model):
    """What became of one event."""

    event_id: str | None = None
    outcome: str = Field(description="A word of `job_events_total`, or `rejected`.")
    reason: str | None = None
    detail: str | None = None


class EventResults(Model):
    """One result per event, in order."""

    results: list[EventResult]


class Key(Model):
    """An API key without its secret."""

    key_id: str
    tenant_id: str | None
    roles: list[str]
    description: str | None
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None


class NewKey(Key):
    """A new key: the bearer token, which is shown this once, and the secret part for Basic."""

    key: str
    secret: str


class DefaultSecret(Model):
    """The secret that signs for one-shot URLs."""

    created_at: Instant | None = Field(description="null: not created yet; one-shot deliveries are held.")
    live: int
    previous_valid_until: Instant | None


class PublicKey(Model):
    """The public half of a webhook's key pair."""

    webhook_id: str
    public_keys: list[str] = Field(description="Live ones, newest first.")


class SigningKeys(Model):
    """The default secret's dates, and a page of public keys."""

    default_secret: DefaultSecret
    data: list[PublicKey]
    next_cursor: str | None


class AuditEntry(Model):
    """One write."""

    audit_id: str
    at: Instant
    tenant_id: str | None
    key_id: str
    action: str
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class StatsWindow(Model):
    """What happened in one span."""

    attempts: int
    outcomes: dict[str, int]
    success_ratio: float | None
    mean_ms: float | None
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


class Stats(Model):
    """How a webhook does."""

    webhook_id: str
    last_hour: StatsWindow
    last_day: StatsWindow


class TopRow(Model):
    """One webhook that stands out."""

    tenant_id: str
    webhook_id: str
    origin: str
    state: str
    value: float = Field(
        description="Deliveries (pending, slots), seconds overdue (oldest) or since success (failing)."
    )
    capped: bool = Field(default=False, description="Counted no further: `value` is an estimate, if more.")
    last_error: str | None = None


class TopList(Model):
    """The worst first."""

    by: str
    data: list[TopRow]


class Pause(Model):
    """An operator's pause."""

    pause_id: str
    scope: Literal["all", "tenant", "host"]
    tenant_id: str | None
    host: str | None
    reason: str | None
    created_by: str
    created_at: Instant


class PauseList(Model):
    """All operator pauses."""

    data: list[Pause]


class Replay(Model):
    """A replay and how far it is."""

    replay_id: str
    webhook_id: str
    which: str
    since: Instant
    until: Instant
    rate: int
    state: Literal["running", "done", "canceled", "failed"]
    reason: str | None
    scanned: int
    queued: int
    skipped: int
    created_at: Instant
    finished_at: Instant | None


class ReplayStart(Model):
    """What a replay started, or (dry run) how many rows it would send."""

    dry_run: bool
    matched: int = Field(description="Rows to go through: it sends those that the webhook wants and that have a body.")
    capped: bool
    replay: Replay | None = None


class WebhookList(Model):
    """A page."""

    data: list[AccountWebhook]
    next_cursor: str | None


class BatchList(Model):
    """A page."""

    data: list[Batch]
    next_cursor: str | None


class JobList(Model):
    """A page."""

    data: list[Job]
    next_cursor: str | None


class DeliveryList(Model):
    """A page; it may be short when few rows match: follow ``next_cursor`` until it is null."""

    data: list[Delivery]
    next_cursor: str | None


class KeyList(Model):
    """A page."""

    data: list[Key]
    next_cursor: str | None


class AuditList(Model):
    """A page."""

    data: list[AuditEntry]
    next_cursor: str | None


class Health(Model):
    """The process answers."""

    status: Literal["ok"]


class FieldProblem(Model):
    """One broken field."""

    field: str
    code: str
    detail: str


class Problem(Model):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] = []
