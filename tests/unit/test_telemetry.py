"""Metrics: the contract of names, types and labels, and that nobody outside can make a series."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from service.domain.attempts import Outcome, OutcomeClass
from service.sender.failures import _OWN
from service.telemetry import QueueState, Telemetry
from tests.support.metrics import samples, value

EVENT_OUTCOMES = {
    *("applied", "duplicate", "stale", "conflict", "dead_letter", "tombstone", "expired", "requeue_without_generation")
}
ANOMALIES = {"negative_span", "decoration_dropped", "two_destinations", "missed_records", "batch_conflict"}
CONTRACT = {  # chapter 6: name -> (type, labels)
    "job_events_total": ("counter", {"outcome"}),
    "job_event_lag_seconds": ("histogram", set()),
    "consumer_records_behind": ("gauge", {"topic", "partition"}),
    "messages_total": ("counter", {"scope", "renotified"}),
    "attempts_total": ("counter", {"outcome", "status_class"}),
    "attempt_duration_seconds": ("histogram", {"outcome"}),
    "delivery_latency_seconds": ("histogram", set()),
    "first_attempt_delay_seconds": ("histogram", set()),
    "deliveries_finished_total": ("counter", {"state"}),
    "deliveries_pending": ("gauge", set()),
    "deliveries_held": ("gauge", set()),
    "oldest_due_seconds": ("gauge", set()),
    "webhooks": ("gauge", {"state"}),
    "breakers_open": ("gauge", set()),
    "partitions_ahead": ("gauge", set()),
    "oldest_transaction_seconds": ("gauge", set()),
    "deliveries_in_flight": ("gauge", set()),
    "outcomes_unrecorded": ("gauge", set()),
    "event_loop_lag_seconds": ("gauge", set()),
    "db_pool_size": ("gauge", set()),
    "db_pool_in_use": ("gauge", set()),
    "clock_skew_seconds": ("gauge", set()),
    "slot_wait_seconds": ("histogram", set()),
    "event_anomalies_total": ("counter", {"kind"}),
    "own_faults_total": ("counter", {"kind"}),
    "webhook_disabled_total": ("counter", set()),
    "blocked_address_total": ("counter", set()),
    "reconciled_batches_total": ("counter", set()),
    "claims_total": ("counter", set()),
    "leases_expired_total": ("counter", set()),
    "dead_letters_total": ("counter", set()),
    "build_info": ("gauge", {"version", "python"}),
}
SCHEDULE = tuple(timedelta(seconds=step) for step in (5, 300, 1800))


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(request_timeout=timedelta(seconds=17), retry_schedule=SCHEDULE)


def label_values(telemetry: Telemetry, name: str, label: str) -> set[str]:
    return {dict(labels)[label] for found, labels in samples(telemetry) if found == f"webhookd_{name}"}


SERVICE = Path(__file__).parents[2] / "service"


def find_kinds_of_own_faults() -> set[str]:
    """The kinds that the code produces, by its text."""
    found = set()
    for file in SERVICE.rglob("*.py"):
        text = file.read_text()
        for pattern in (
            r'own_fault\("(\w+)"',
            r'OwnFault\("(\w+)"',
            r'_FAULT = "(\w+)"',
            r'KEY_STORE: Final = "(\w+)"',
        ):
            found |= set(re.findall(pattern, text))
    return found | set(_OWN.values())


def test_f75_names_types_and_labels_are_the_contract(telemetry):
    telemetry.publish_queue(QueueState())
    telemetry.records_behind("extraction.jobs", 0, 0)
    body, content_type = telemetry.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    found = {}
    for family in parse_openmetrics(body.decode()):
        if family.name.startswith("webhookd_"):
            name = family.name.removeprefix("webhookd_") + ("_total" if family.type == "counter" else "")
            found[name] = (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
    assert found == CONTRACT


def test_known_label_sets_start_at_0(telemetry):
    assert label_values(telemetry, "job_events_total", "outcome") == EVENT_OUTCOMES
    assert label_values(telemetry, "attempts_total", "outcome") == set(OutcomeClass)
    assert label_values(telemetry, "attempts_total", "status_class") == {
        *("1xx", "2xx", "3xx", "4xx", "5xx", "other", "none")
    }
    assert label_values(telemetry, "attempt_duration_seconds_count", "outcome") == set(OutcomeClass)
    assert label_values(telemetry, "event_anomalies_total", "kind") == ANOMALIES
    assert label_values(telemetry, "deliveries_finished_total", "state") == {
        *("delivered", "failed", "superseded", "canceled")
    }
    assert label_values(telemetry, "messages_total", "scope") == {"batch", "job", "none"}
    assert label_values(telemetry, "own_faults_total", "kind") == {*find_kinds_of_own_faults(), "other"}
    ours = {key: found for key, found in samples(telemetry).items() if key[0].startswith("webhookd_")}
    assert {key[0] for key, found in ours.items() if found} == {"webhookd_build_info"}


def test_f71_the_peer_makes_no_series(telemetry):
    before = len(samples(telemetry))
    for status in range(600, 1000):
        telemetry.attempt(Outcome(OutcomeClass.HTTP_ERROR, status=status, duration=0.1))
    for status in range(400, 600):
        telemetry.attempt(Outcome(OutcomeClass.HTTP_ERROR, status=status, duration=0.1))
    telemetry.own_fault("something nobody thought of")
    assert len(samples(telemetry)) == before
    assert value(telemetry, "attempts_total", outcome="http_error", status_class="other") == 400
    assert value(telemetry, "attempts_total", outcome="http_error", status_class="4xx") == 100
    assert value(telemetry, "own_faults_total", kind="other") == 1


def test_an_outcome_with_an_unusual_status_is_counted_under_its_class(telemetry):
    telemetry.attempt(Outcome(OutcomeClass.PROTOCOL_ERROR, status=101))
    assert value(telemetry, "attempts_total", outcome="protocol_error", status_class="1xx") == 1


def test_one_attempt_is_one_call(telemetry):
    outcome = Outcome(OutcomeClass.DELIVERED, status=204, duration=16.5)
    telemetry.attempt(outcome, slot_wait=0.002, first_delay=4.9, latency=300.0)
    assert value(telemetry, "attempts_total", outcome="delivered", status_class="2xx") == 1
    assert value(telemetry, "attempt_duration_seconds_bucket", outcome="delivered", le="17.0") == 1
    assert value(telemetry, "attempt_duration_seconds_bucket", outcome="delivered", le="10.0") == 0
    assert value(telemetry, "attempt_duration_seconds_sum", outcome="delivered") == 16.5
    assert value(telemetry, "slot_wait_seconds_bucket", le="0.0025") == 1
    assert value(telemetry, "first_attempt_delay_seconds_bucket", le="5.0") == 1
    assert value(telemetry, "delivery_latency_seconds_bucket", le="305.0") == 1
    assert value(telemetry, "delivery_latency_seconds_bucket", le="5.0") == 0
    assert value(telemetry, "delivery_latency_seconds_count") == 1


def test_what_an_attempt_does_not_have_is_not_counted(telemetry):
    telemetry.attempt(Outcome(OutcomeClass.BLOCKED_ADDRESS))
    for name in ("slot_wait_seconds", "first_attempt_delay_seconds", "delivery_latency_seconds"):
        assert value(telemetry, f"{name}_count") == 0
    assert value(telemetry, "blocked_address_total") == 1


def test_buckets_on_the_timeout_and_on_the_sums_of_the_schedule(telemetry):
    assert "17.0" in label_values(telemetry, "attempt_duration_seconds_bucket", "le")
    assert {"5.0", "305.0", "2105.0", "+Inf"} <= label_values(telemetry, "delivery_latency_seconds_bucket", "le")


def test_a_clock_that_stepped_back_spoils_no_sum(telemetry):
    telemetry.job_event_lag(-3600.0)
    assert value(telemetry, "job_event_lag_seconds_count") == 1
    assert value(telemetry, "job_event_lag_seconds_sum") == 0


def test_counters(telemetry):
    telemetry.job_events("stale", 3)
    telemetry.messages("batch", renotified=True)
    telemetry.event_anomalies("missed_records", 40)
    telemetry.deliveries_finished("superseded", 2)
    telemetry.deliveries_claimed(5)
    telemetry.leases_expired(1)
    telemetry.webhooks_disabled()
    telemetry.batches_reconciled(2)
    telemetry.dead_letters(1)
    telemetry.own_fault("descriptors")
    assert value(telemetry, "job_events_total", outcome="stale") == 3
    assert value(telemetry, "messages_total", scope="batch", renotified="true") == 1
    assert value(telemetry, "event_anomalies_total", kind="missed_records") == 40
    assert value(telemetry, "deliveries_finished_total", state="superseded") == 2
    assert value(telemetry, "own_faults_total", kind="descriptors") == 1
    single = {"claims": 5, "leases_expired": 1, "webhook_disabled": 1, "reconciled_batches": 2, "dead_letters": 1}
    assert {name: value(telemetry, f"{name}_total") for name in single} == single


def test_words_outside_the_closed_sets_are_bugs(telemetry):
    with pytest.raises(ValueError, match="event_anomalies_total"):
        telemetry.event_anomalies("odd")
    with pytest.raises(KeyError):
        telemetry.job_events("odd")


def test_a_partition_is_reported_by_its_owner_only(telemetry):
    telemetry.records_behind("extraction.jobs", 3, 12)
    assert value(telemetry, "consumer_records_behind", topic="extraction.jobs", partition="3") == 12
    telemetry.partition_lost("extraction.jobs", 3)
    telemetry.partition_lost("extraction.jobs", 4)
    assert not label_values(telemetry, "consumer_records_behind", "topic")


def test_the_queue_is_exposed_by_the_leader_only(telemetry):
    names = {name for name, _ in samples(telemetry)}
    assert "webhookd_deliveries_pending" not in names
    telemetry.publish_queue(QueueState(deliveries_pending=7, oldest_due_seconds=1.5, webhooks={"enabled": 3}))
    assert value(telemetry, "deliveries_pending") == 7
    assert value(telemetry, "oldest_due_seconds") == 1.5
    assert value(telemetry, "webhooks", state="enabled") == 3
    assert value(telemetry, "webhooks", state="disabled") == 0
    telemetry.publish_queue(None)
    assert {name for name, _ in samples(telemetry)} == names


def test_gauges_of_the_process(telemetry):
    in_flight = [1, 2, 3]
    telemetry.follow("deliveries_in_flight", lambda: len(in_flight))
    telemetry.set_gauge("clock_skew_seconds", -0.25)
    assert value(telemetry, "deliveries_in_flight") == 3
    assert value(telemetry, "clock_skew_seconds") == -0.25


def test_instances_share_nothing(telemetry):
    other = Telemetry(request_timeout=timedelta(seconds=15), retry_schedule=SCHEDULE)
    telemetry.deliveries_claimed(5)
    assert value(other, "claims_total") == 0


def test_process_and_collector_metrics_are_there(telemetry):
    names = {name for name, _ in samples(telemetry)}
    assert {"process_cpu_seconds_total", "python_info", "python_gc_collections_total"} <= names
    assert not {name for name in names if name.endswith("_created")}
