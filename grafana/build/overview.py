"""Overview: do receivers get their webhooks? The service level first, then rate, errors and duration, then the queue."""

from __future__ import annotations

from grafana.build.model import (
    GREEN,
    ORANGE,
    RED,
    Dashboard,
    Panel,
    Query,
    Row,
    per_minute,
    quantiles,
    tile,
    total_per_minute,
)

DELAY = "webhookd_first_attempt_delay_seconds"
TARGET = 0.999


def share_in_time(window: str) -> str:
    """The share of first attempts within 5 s."""
    return f'sum(increase({DELAY}_bucket{{…, le="5.0"}}[{window}])) / sum(increase({DELAY}_count{{…}}[{window}]))'


def burn(window: str) -> Query:
    """How many times faster than allowed the error budget is used."""
    return Query(f"(1 - {share_in_time(window)}) / {1 - TARGET:g}", f"over {window}")


ANSWERS = (
    tile(
        "First attempts within 5 s",
        "Of the last hour's first attempts, the share that started within 5 s of the commit. The objective is 99.9 %.\n\n"
        "Red here: webhookd is late, whatever receivers do. Waits for a webhook's own limits do not count.",
        (Query(share_in_time("1h"), "in time"),),
        unit="percentunit",
        height=5,
        decimals=2,
        thresholds=((None, RED), (0.99, ORANGE), (TARGET, GREEN)),
        nothing="no traffic",
        ahead="delivery-engine",
    ),
    tile(
        "Error budget left, 30 days",
        "What is left of the 0.1 % of first attempts that may be late. Below 0 the objective is missed.",
        (Query(f"1 - (1 - {share_in_time('30d')}) / {1 - TARGET:g}", "left"),),
        unit="percentunit",
        height=5,
        decimals=0,
        thresholds=((None, RED), (0.0, ORANGE), (0.25, GREEN)),
        nothing="no traffic",
    ),
    tile(
        "Accepted by receivers",
        "Of the last 5 minutes' attempts, the share answered 2xx. Low with the first panel green: receivers fail, not we.",
        (
            Query(
                'sum(rate(webhookd_attempts_total{…, outcome="delivered"}[5m]))'
                " / (sum(rate(webhookd_attempts_total{…}[5m])) > 0)",
                "accepted",
            ),
        ),
        unit="percentunit",
        height=5,
        decimals=1,
        thresholds=((None, RED), (0.5, ORANGE), (0.9, GREEN)),
        nothing="no traffic",
        ahead="webhook-health",
    ),
    tile(
        "Oldest due delivery",
        "How long the delivery that has waited longest should have been attempted by now. Above a minute nobody is "
        "claiming, or one webhook is at its own limit: `GET /v1/operator/top?by=oldest` says which.\n\n"
        "Unknown: no process leads upkeep.",
        (Query("max(webhookd_oldest_due_seconds{…})", "oldest due"),),
        unit="s",
        height=5,
        decimals=0,
        thresholds=((None, GREEN), (60, ORANGE), (300, RED)),
        nothing="unknown",
        ahead="delivery-engine",
    ),
    tile(
        "Given up in the last hour",
        "Deliveries that ended `failed`: their schedule is over, or their URL is refused. Nothing more happens to them "
        "until somebody redelivers or replays them.",
        (Query('sum(increase(webhookd_deliveries_finished_total{…, state="failed"}[1h]))', "failed"),),
        height=5,
        decimals=0,
        thresholds=((None, GREEN), (0.5, ORANGE)),
        ahead="webhook-health",
    ),
    tile(
        "Alerts firing",
        "Of `grafana/alerts`, as Prometheus evaluates them. What each means and what to do: `grafana/RUNBOOK.md`.",
        (
            Query(
                'count(ALERTS{…, alertname=~"Webhookd.+", alertstate="firing"}) or vector(0)',
                "firing",
            ),
        ),
        height=5,
        decimals=0,
        thresholds=((None, GREEN), (1, RED)),
    ),
)

FIRING = Panel(
    "What fires",
    "Alerts and since when; `grafana/RUNBOOK.md` has a section for each. Empty is good.",
    (
        Query(
            'max by (alertname, severity) (ALERTS{…, alertname=~"Webhookd.+", alertstate="firing"})',
            "{{alertname}} ({{severity}})",
        ),
    ),
    kind="state-timeline",
    width=16,
    height=5,
    thresholds=((None, RED),),
    nothing="nothing",
)

ENDED = 'sum(increase(webhookd_deliveries_finished_total{…, state=~"delivered|failed"}[1h]))'

RESULTS = (
    tile(
        "Ended well, last hour",
        "Of the deliveries that ended in the last hour, the share that receivers accepted, however many attempts it took. "
        "The rest was given up. Superseded and canceled ones are left out: nobody waits for them.",
        (
            Query(
                f'sum(increase(webhookd_deliveries_finished_total{{…, state="delivered"}}[1h])) / ({ENDED} > 0)', "well"
            ),
        ),
        unit="percentunit",
        height=5,
        decimals=2,
        thresholds=((None, RED), (0.95, ORANGE), (0.999, GREEN)),
        nothing="no traffic",
        ahead="webhook-health",
    ),
    tile(
        "Held now",
        "Deliveries that nobody tries to send: their webhook is paused or disabled, or there is no key to sign with. They "
        "go out when that ends, and are given up when they are held for longer than their schedule.\n\n"
        "Unknown: no process leads upkeep.",
        (Query("max(webhookd_deliveries_held{…})", "held"),),
        height=5,
        decimals=0,
        thresholds=((None, GREEN), (0.5, ORANGE)),
        nothing="unknown",
        ahead="webhook-health",
    ),
)

SERVICE_LEVEL = (
    Panel(
        "How fast the error budget burns",
        "1 is just allowed. WebhookdSloBurnFast fires at 14.4 over an hour or 6 over six hours, if the last minutes "
        "agree. A gap is an hour without first attempts.",
        (burn("1h"), burn("6h")),
        unit="suffix: ×",
        thresholds=((None, "transparent"), (1, ORANGE), (14.4, RED)),
    ),
    Panel(
        "Commit to first attempt",
        "How long a delivery waits for its first POST after the commit; 5 s is the objective's line.",
        quantiles(DELAY, 0.5, 0.99, 0.999),
        unit="s",
        logarithmic=True,
        thresholds=((None, "transparent"), (5, RED)),
        ahead="delivery-engine",
    ),
)

DELIVERIES = (
    Panel(
        "Rate: attempts by outcome",
        "One HTTP POST each. Green was accepted; everything else is tried again on the schedule, except `gone` and "
        "`url_refused`.",
        (per_minute("webhookd_attempts_total", "outcome"),),
        unit="suffix: /min",
        stacked=True,
        ahead="webhook-health",
    ),
    Panel(
        "Errors: share of attempts by failure",
        "Many kinds at once point to us (DNS, egress, TLS trust); one kind points to receivers.",
        (
            Query(
                'sum by (outcome) (rate(webhookd_attempts_total{…, outcome!="delivered"}[$__rate_interval]))'
                " / on () group_left () (sum(rate(webhookd_attempts_total{…}[$__rate_interval])) > 0)",
                "{{outcome}}",
            ),
        ),
        unit="percentunit",
        stacked=True,
        maximum=1,
        ahead="webhook-health",
    ),
    Panel(
        "Duration: how fast receivers answer",
        "Connecting to the status line, all outcomes; a timeout counts with its full length.",
        quantiles("webhookd_attempt_duration_seconds", 0.5, 0.95, 0.99),
        unit="s",
        logarithmic=True,
        ahead="webhook-health",
    ),
    Panel(
        "Finish to accepted",
        "What a customer feels: from the finish until the receiver accepted it, retries included.",
        quantiles("webhookd_delivery_latency_seconds", 0.5, 0.95, 0.99),
        unit="s",
        logarithmic=True,
    ),
)

QUEUE = (
    Panel(
        "In and out",
        "Messages made against deliveries ended. A message may have no destination, or several.",
        (
            total_per_minute("webhookd_messages_total", "messages made"),
            per_minute("webhookd_deliveries_finished_total", "state"),
        ),
        unit="suffix: /min",
    ),
    Panel(
        "Waiting and held",
        "Waiting: for an attempt, retries included. Held: until somebody enables the webhook or makes a signing key.",
        (
            Query("max(webhookd_deliveries_pending{…})", "waiting"),
            Query("max(webhookd_deliveries_held{…})", "held"),
        ),
        ahead="delivery-engine",
    ),
    Panel(
        "Job events",
        "Is work arriving at all? Nothing here and nothing above: producers are quiet, or the consumer is stuck.",
        (per_minute("webhookd_job_events_total", "outcome"),),
        unit="suffix: /min",
        stacked=True,
        ahead="ingest-and-batches",
    ),
    Panel(
        "Kafka records not read yet",
        "Growing: the consumer is too slow or stuck. Missing: no process reads the topics.",
        (Query("sum by (topic) (webhookd_consumer_records_behind{…})", "{{topic}}"),),
        nothing="no consumer",
        ahead="ingest-and-batches",
    ),
)

OVERVIEW = Dashboard(
    "overview",
    "Overview",
    "Do receivers get their webhooks? Top left is ours to answer for, the third is the receivers'; below: how it ended.",
    (
        Row("Do receivers get their webhooks?", (*ANSWERS, *RESULTS, FIRING)),
        Row("Service level: 99.9 % of first attempts within 5 s", SERVICE_LEVEL),
        Row("Deliveries: rate, errors, duration", DELIVERIES),
        Row("Work arriving, work waiting", QUEUE),
    ),
)
