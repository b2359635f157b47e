"""Delivery engine: the queue, leases, the database, the event loop."""

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
    total_per_minute,
)

QUEUE = (
    Panel(
        "Waiting and held",
        "Deliveries that wait for an attempt, retries included, and those held. Counted up to 10,000, estimated beyond.",
        (
            Query("max(webhookd_deliveries_pending{…})", "waiting"),
            Query("max(webhookd_deliveries_held{…})", "held"),
        ),
    ),
    Panel(
        "Oldest due delivery",
        "How overdue the oldest is. With one webhook at its rate limit this may be right: "
        "`GET /v1/operator/top?by=oldest`.",
        (Query("max(webhookd_oldest_due_seconds{…})", "oldest due"),),
        unit="s",
        thresholds=((None, "transparent"), (300, RED)),
    ),
    Panel(
        "Claims and ends",
        "Deliveries claimed from the queue, and deliveries ended. New ones of the same process go out without a claim.",
        (
            total_per_minute("webhookd_claims_total", "claimed"),
            per_minute("webhookd_deliveries_finished_total", "state"),
        ),
        unit="suffix: /min",
    ),
    Panel(
        "In flight, by process",
        "Attempts under way. Flat at `MAX_IN_FLIGHT`: slots are the limit.",
        (Query("sum by (instance) (webhookd_deliveries_in_flight{…})", "{{instance}}"),),
        stacked=True,
    ),
    Panel(
        "Commit to first attempt",
        "Where the objective's 5 s are spent; waits for a webhook's own limits left out.",
        (buckets("webhookd_first_attempt_delay_seconds"),),
        kind="heatmap",
        unit="short",
    ),
    Panel(
        "Waiting for a slot",
        "From ready to POST until a slot was free. Grows when too many attempts are slow at once.",
        quantiles("webhookd_slot_wait_seconds", 0.5, 0.99),
        unit="s",
        logarithmic=True,
        thresholds=((None, "transparent"), (5, RED)),
    ),
)

LEASES = (
    Panel(
        "Leases that ran out",
        "Deliveries taken back from a process that died or froze; each may be sent twice. 0 in good times.",
        (total_per_minute("webhookd_leases_expired_total", "expired"),),
        unit="suffix: /min",
        width=8,
    ),
    Panel(
        "Outcomes not written yet",
        "Attempts made whose result is not in the database. At 1,000 a process starts no attempt.",
        (Query("max by (instance) (webhookd_outcomes_unrecorded{…})", "{{instance}}"),),
        thresholds=((None, "transparent"), (500, RED)),
        width=8,
    ),
    Panel(
        "Own faults",
        "Attempts not made because of us: descriptors, ports, the egress proxy, keys, bugs. No retry is used.",
        (per_minute("webhookd_own_faults_total", "kind"),),
        unit="suffix: /min",
        width=8,
    ),
)

DATABASE = (
    Panel(
        "Connections, by process",
        "Open and in use. In use at the pool's size: queries wait. 0 open: the database cannot be reached.",
        (
            Query("sum by (instance) (webhookd_db_pool_size{…})", "{{instance}} open"),
            Query("sum by (instance) (webhookd_db_pool_in_use{…})", "{{instance}} in use"),
        ),
    ),
    Panel(
        "Oldest transaction",
        "Age of the oldest transaction in the database, anybody's. Long ones keep dead rows from being removed.",
        (Query("max(webhookd_oldest_transaction_seconds{…})", "oldest"),),
        unit="s",
        thresholds=((None, "transparent"), (600, ORANGE)),
    ),
    Panel(
        "Partitions ahead",
        "Periods for which partitions exist beyond the current one, of the table that has fewest. Three is right.",
        (Query("min(webhookd_partitions_ahead{…})", "ahead"),),
        decimals=0,
        thresholds=((None, "transparent"), (1, ORANGE)),
    ),
    Panel(
        "Clock, this machine minus the database",
        "Everything that counts goes by the database's clock; a machine that differs stamps its log lines and spans wrongly.",
        (Query("max by (instance) (webhookd_clock_skew_seconds{…})", "{{instance}}"),),
        unit="s",
        signed=True,
    ),
)

PROCESS = (
    Panel(
        "Event loop lag",
        "Worst delay of the loop in the last minute. Above 100 ms something blocks or the CPU is short.",
        (Query("max by (instance) (webhookd_event_loop_lag_seconds{…})", "{{instance}}"),),
        unit="s",
        width=8,
        thresholds=((None, "transparent"), (1, ORANGE)),
    ),
    Panel(
        "CPU",
        "Cores used. A process is one event loop: at 1 it is full.",
        (Query("sum by (instance) (rate(process_cpu_seconds_total{…}[$__rate_interval]))", "{{instance}}"),),
        width=8,
        thresholds=((None, "transparent"), (0.9, ORANGE)),
    ),
    Panel(
        "Memory",
        "Resident set size.",
        (Query("max by (instance) (process_resident_memory_bytes{…})", "{{instance}}"),),
        unit="bytes",
        width=8,
    ),
    Panel(
        "File descriptors",
        "Share of the limit in use; connections to receivers are most of them.",
        (
            Query(
                "max by (instance) (process_open_fds{…}) / max by (instance) (process_max_fds{…})",
                "{{instance}}",
            ),
        ),
        unit="percentunit",
        width=8,
        thresholds=((None, "transparent"), (0.8, ORANGE)),
    ),
    Panel(
        "Garbage collections",
        "Of the oldest generation, which stop the loop longest. Seldom by design.",
        (
            Query(
                '60 * sum by (instance) (rate(python_gc_collections_total{…, generation="2"}[$__rate_interval]))',
                "{{instance}}",
            ),
        ),
        unit="suffix: /min",
        width=8,
    ),
    Panel(
        "Versions",
        "What runs where.",
        (Query("max by (namespace, job, instance, version, python) (webhookd_build_info{…})", "{{instance}}"),),
        kind="table",
        width=8,
        thresholds=((None, GREEN),),
    ),
)

DELIVERY_ENGINE = Dashboard(
    "delivery-engine",
    "Delivery engine",
    "Why deliveries wait: slots, leases, the database, the event loop.",
    (
        Row("Queue", QUEUE),
        Row("Leases and faults", LEASES),
        Row("Database", DATABASE),
        Row("Process", PROCESS),
    ),
)
