"""Ingest and batches: what producers send, how far behind we are, what is put aside."""

from __future__ import annotations

from grafana.build.model import (
    GREEN,
    ORANGE,
    RED,
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

NONE_IS_GOOD = ((None, GREEN), (0.5, ORANGE))

ANSWERS = (
    tile(
        "Kafka records not read yet",
        "Over all partitions that a process owns. `no consumer` where events come by HTTP only, or Kafka is away.",
        (Query("sum(webhookd_consumer_records_behind{…})", "behind"),),
        thresholds=((None, GREEN), (1_000, ORANGE), (10_000, RED)),
        nothing="no consumer",
    ),
    tile(
        "Lag, 99 of 100 events",
        "From an event's `occurred_at` to the commit, last 5 minutes. Producers that write late show here too.",
        (
            Query(
                "histogram_quantile(0.99, sum by (le) (rate(webhookd_job_event_lag_seconds_bucket{…}[5m])))",
                "p99",
            ),
        ),
        unit="s",
        thresholds=((None, GREEN), (10, ORANGE), (60, RED)),
        nothing="no events",
    ),
    tile(
        "Dead letters, 24 h",
        "Records put aside. `webhookd dlq list` shows them with the reason; after a repair, `webhookd dlq replay --reason`.",
        (Query("sum(increase(webhookd_dead_letters_total{…}[24h]))", "dead letters"),),
        decimals=0,
        thresholds=NONE_IS_GOOD,
    ),
    tile(
        "Records missed, 24 h",
        "The log was cut before we had read it: finishes may be lost, the producer has to send them again.",
        (Query('sum(increase(webhookd_event_anomalies_total{…, kind="missed_records"}[24h]))', "missed"),),
        decimals=0,
        thresholds=((None, GREEN), (0.5, RED)),
    ),
    tile(
        "Reruns not told of, 24 h",
        "Of the last 24 h: finished jobs queued again under their old generation. Such a rerun notifies nobody; the "
        "producer has to raise `generation`.",
        (
            Query(
                'sum(increase(webhookd_job_events_total{…, outcome="requeue_without_generation"}[24h]))',
                "requeued",
            ),
        ),
        decimals=0,
        thresholds=NONE_IS_GOOD,
    ),
    tile(
        "Batches repaired, 24 h",
        "Batches whose counters the sweep found wrong and set right. Never expected: please report it.",
        (Query("sum(increase(webhookd_reconciled_batches_total{…}[24h]))", "repaired"),),
        decimals=0,
        thresholds=NONE_IS_GOOD,
    ),
)

EVENTS = (
    Panel(
        "Job events by outcome",
        "`duplicate` and `stale` are harmless repeats. `conflict`: a second, different end of one run.",
        (per_minute("webhookd_job_events_total", "outcome"),),
        unit="suffix: /min",
        stacked=True,
    ),
    Panel(
        "Event to commit",
        "From `occurred_at` to the commit. Both clocks count.",
        quantiles("webhookd_job_event_lag_seconds", 0.5, 0.95, 0.99),
        unit="s",
        logarithmic=True,
    ),
    Panel(
        "Not read yet, by partition",
        "One partition alone: a hot key, or its owner is stuck.",
        (
            Query(
                "sum by (topic, partition) (webhookd_consumer_records_behind{…})",
                "{{topic}} {{partition}}",
            ),
        ),
        nothing="no consumer",
    ),
    Panel(
        "Event to commit, all",
        "A second band far above the first is a producer that writes late.",
        (buckets("webhookd_job_event_lag_seconds"),),
        kind="heatmap",
    ),
)

ODD = (
    Panel(
        "Dead letters",
        "Bad JSON, unknown sources or words, oversize, or a bug (`internal_error`). Nothing behind them waits.",
        (total_per_minute("webhookd_dead_letters_total", "dead letters"),),
        unit="suffix: /min",
    ),
    Panel(
        "Oddities in events",
        "`decoration_dropped`: a bad optional field. `negative_span`: times that go backwards. `two_destinations`: URL "
        "and webhook id in one job. `batch_conflict`: one job in two batches. `missed_records`: a gap in the log.",
        (per_minute("webhookd_event_anomalies_total", "kind"),),
        unit="suffix: /min",
    ),
)

FINISHES = (
    Panel(
        "Messages by scope",
        "Finishes of batches and of jobs; `none` are test and operational messages. A job whose end nobody asked for makes no "
        "message; a batch always does.",
        (per_minute("webhookd_messages_total", "scope"),),
        unit="suffix: /min",
        stacked=True,
    ),
    Panel(
        "First and repeated finishes",
        "`true`: a batch or job that had finished before, after a rerun or an addition, or a copy made by `/renotify`.",
        (per_minute("webhookd_messages_total", "renotified"),),
        unit="suffix: /min",
        stacked=True,
    ),
)

INGEST_AND_BATCHES = Dashboard(
    "ingest-and-batches",
    "Ingest and batches",
    "What producers send, how far behind we are, what is put aside.",
    (
        Row("Is everything read?", ANSWERS),
        Row("Events", EVENTS),
        Row("Put aside", ODD),
        Row("Finishes", FINISHES),
    ),
)
