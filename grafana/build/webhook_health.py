"""Webhook health: how receivers fare, taken together; which one it is, the API says."""

from __future__ import annotations

from grafana.build.model import (
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Dashboard,
    Panel,
    Query,
    Row,
    buckets,
    per_minute,
    quantiles,
    tile,
    total_per_minute,
)

ANSWERS = (
    *(
        tile(
            f"{state.capitalize()} webhooks",
            text,
            (Query(f'max(webhookd_webhooks{{…, state="{state}"}})', state),),
            decimals=0,
            thresholds=steps,
            nothing="unknown",
        )
        for state, text, steps in (
            ("enabled", "Registered webhooks that deliveries go to.", ((None, GREEN),)),
            ("paused", "Paused by their owners: deliveries are held.", ((None, GREEN), (1, YELLOW))),
            (
                "disabled",
                "Disabled for `gone` (a 410) or `failing` (days without a success): deliveries are held.",
                ((None, GREEN), (1, ORANGE)),
            ),
        )
    ),
    tile(
        "Open breakers",
        "Webhooks that fail now and are probed one attempt at a time.",
        (Query("max(webhookd_breakers_open{…})", "open"),),
        decimals=0,
        thresholds=((None, GREEN), (1, ORANGE)),
        nothing="unknown",
    ),
    tile(
        "Disabled in 24 h",
        "How many webhooks were disabled; each also logs `webhook_disabled` and tells who subscribed to it.",
        (Query("sum(increase(webhookd_webhook_disabled_total{…}[24h]))", "disabled"),),
        decimals=0,
        thresholds=((None, GREEN), (0.5, ORANGE)),
    ),
    tile(
        "Refused addresses, 24 h",
        "Attempts whose name led to an address that we do not send to (private, metadata, denied). A burst is a tenant "
        "probing our network, or a change of DNS.",
        (Query("sum(increase(webhookd_blocked_address_total{…}[24h]))", "refused"),),
        decimals=0,
        thresholds=((None, GREEN), (0.5, ORANGE)),
    ),
)

WHICH = (
    Panel(
        "Which webhook is it?",
        "No metric names a tenant or a webhook. Ask the API with an operator key:\n\n"
        "* `GET /v1/operator/top?by=failing`: open breaker, longest without a success\n"
        "* `GET /v1/operator/top?by=pending`: most deliveries waiting\n"
        "* `GET /v1/operator/top?by=oldest`: longest overdue\n"
        "* `GET /v1/operator/top?by=slots`: most slots in use\n\n"
        "Then `GET /v1/webhooks/{id}/stats`, and `GET /v1/deliveries?webhook={id}` for the attempts.\n\n"
        "To stop one at once: `POST /v1/operator/pauses`.",
        kind="text",
        width=8,
    ),
    Panel(
        "Webhooks by state",
        "Registered webhooks, one-shot URLs left out.",
        (Query("max by (state) (webhookd_webhooks{…})", "{{state}}"),),
        width=8,
        nothing="unknown",
    ),
    Panel(
        "Open breakers and disabled webhooks",
        "Breakers rise and fall by themselves; disabling needs days of failure.",
        (
            Query("max(webhookd_breakers_open{…})", "open breakers"),
            Query("sum(increase(webhookd_webhook_disabled_total{…}[1h]))", "disabled within an hour"),
        ),
        width=8,
    ),
)

ATTEMPTS = (
    Panel(
        "Failed attempts by outcome",
        "`http_error` is an answer of 4xx or 5xx; the others had no valid answer. `dns_error`, `connect_error` and "
        "`tls_error` of all receivers at once are ours.",
        (per_minute("webhookd_attempts_total", "outcome", ', outcome!="delivered"'),),
        unit="suffix: /min",
        stacked=True,
    ),
    Panel(
        "Attempts by status class",
        "`none`: no valid answer. 429 and 503 also make the whole webhook wait.",
        (per_minute("webhookd_attempts_total", "status_class"),),
        unit="suffix: /min",
        stacked=True,
    ),
    Panel(
        "Answer time, 95 of 100, by outcome",
        "Connecting to the status line.",
        quantiles("webhookd_attempt_duration_seconds", 0.95, by="outcome"),
        unit="s",
        logarithmic=True,
    ),
    Panel(
        "Answer time, all",
        "A band at the timeout is receivers that do the work before they answer.",
        (buckets("webhookd_attempt_duration_seconds"),),
        kind="heatmap",
    ),
)

ENDS = (
    Panel(
        "Deliveries ended",
        "`superseded`: a newer finish of the same batch went out instead. `canceled`: the webhook or batch was deleted.",
        (per_minute("webhookd_deliveries_finished_total", "state"),),
        unit="suffix: /min",
        stacked=True,
    ),
    Panel(
        "Finish to accepted",
        "Steps are the retry schedule's.",
        quantiles("webhookd_delivery_latency_seconds", 0.5, 0.95, 0.99),
        unit="s",
        logarithmic=True,
    ),
    Panel(
        "Held",
        "Deliveries of paused and disabled webhooks, without a signing key, undecryptable, or after an internal error.",
        (Query("max(webhookd_deliveries_held{…})", "held"),),
        nothing="unknown",
    ),
    Panel(
        "Refused addresses",
        "Attempts that ended before any packet, for the address that the name led to.",
        (total_per_minute("webhookd_blocked_address_total", "refused"),),
        unit="suffix: /min",
        thresholds=((None, "transparent"), (1_000, RED)),
    ),
)

WEBHOOK_HEALTH = Dashboard(
    "webhook-health",
    "Webhook health",
    "How receivers fare, taken together; which one it is, the API says.",
    (
        Row("Receivers", ANSWERS),
        Row("Which one", WHICH),
        Row("Attempts", ATTEMPTS),
        Row("Deliveries", ENDS),
    ),
)
