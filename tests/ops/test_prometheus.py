"""A real Prometheus scrapes a real service while jobs finish, fail, repeat and go wrong: every expression gives data."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import yaml
from anyio.from_thread import BlockingPortal

from tests.e2e.story import (
    LATER,
    NOBODY,
    QUICK,
    Tenant,
    completed,
    create_topic,
    new_tenant,
    now,
    opened_topic,
    queued,
    started,
)
from tests.support.postgres import create_database, drop_database
from tests.support.prometheus import (
    RULES,
    Prometheus,
    fill_in,
    list_groupings,
    list_shown,
    list_sides,
    load_dashboards,
    load_rules,
    name_of,
    real_samples,
)
from tests.support.receiving import DROP, Answer, Receiver
from tests.support.service import Service, build_settings, eventually

pytestmark = [pytest.mark.xdist_group("prometheus"), pytest.mark.timeout(400)]

WINDOW = "10m"  # of rates: all of the drive
PARTITIONS = 2

FIRING = {  # what the drive does without any wait
    "WebhookdDeadLetters",
    "WebhookdDeliveriesExhausted",
    "WebhookdRequeueWithoutGeneration",
    "WebhookdWebhooksDisabled",
}


@dataclass(frozen=True, slots=True)
class Observed:
    """A service with its history in Prometheus."""

    prometheus: Prometheus
    service: Service
    portal: BlockingPortal

    def ask(self, expr: str):
        return self.portal.call(self.prometheus.ask, expr)


@pytest.fixture(scope="module")
def observed(
    portal: BlockingPortal, postgres: str, database_template: str, broker: str, tmp_path_factory
) -> Iterator[Observed]:
    directory = tmp_path_factory.mktemp("observed")
    database, topic = portal.call(create_database, postgres, "observed", database_template), "observed"
    portal.call(create_topic, broker, topic, PARTITIONS)
    settings = build_settings(database, kafka_bootstrap_servers=broker, kafka_topics=topic, kafka_group_id=topic)
    service = Service(settings, directory / "service.log")
    target = service.ops_url.removeprefix("http://")
    prometheus = Prometheus(directory, {"webhookd": target}, [copy_rules(path, directory) for path in RULES])
    try:
        service.launch()
        prometheus.launch()
        portal.call(service.wait_until_ready)
        portal.call(prometheus.wait_until_ready)
        portal.call(drive, service, broker, topic)
        portal.call(settled, prometheus)
        yield Observed(prometheus, service, portal)
    finally:
        prometheus.end()
        service.end()
        portal.call(drop_database, postgres, "observed")


def copy_rules(path, directory):
    """The rules as they are shipped, but all evaluated at once."""
    document = yaml.safe_load(path.read_text())
    for group in document["groups"]:
        group.pop("interval", None)
    copy = directory / path.name
    copy.write_text(yaml.safe_dump(document))
    return copy


async def settled(prometheus: Prometheus) -> None:
    """Every gauge was scraped, the leader's included, and the alerts that the drive lights are lit."""

    async def lit() -> bool:
        return await prometheus.list_firing() >= FIRING

    await eventually(lit)
    for _ in range(2):  # scrapes more, so that rates have what came last
        await scraped_again(prometheus)


async def scraped_again(prometheus: Prometheus) -> None:
    async def find_last() -> float:
        samples = await prometheus.ask("timestamp(webhookd_build_info)")
        return max((value for _, value in samples), default=0.0)

    before = await find_last()

    async def is_newer() -> bool:
        return await find_last() > before

    await eventually(is_newer, every=0.1)


# --- What happens to the service ----------------------------------------------------------------------------------


async def drive(service: Service, broker: str, topic_name: str) -> None:
    async with AsyncExitStack() as stack:
        topic = await stack.enter_async_context(opened_topic(broker, topic_name, PARTITIONS))
        tenant = await stack.enter_async_context(new_tenant(service, topic))
        receivers = [await stack.enter_async_context(Receiver()) for _ in range(5)]
        await asyncio.gather(
            succeed_after_retry_and_reprocess(tenant, receivers[0]),
            fail_for_good(tenant, receivers[1]),
            go_away(tenant, receivers[2]),
            answer_oddly(tenant, receivers[3]),
            supersede_and_cancel(tenant, receivers[4]),
            send_nonsense(tenant),
        )


async def succeed_after_retry_and_reprocess(tenant: Tenant, receiver: Receiver) -> None:
    batch = tenant.batch("good")
    await batch.register(receiver)
    receiver.answer(500)
    await batch.produce(queued("a"), queued("b"), started("a"), completed("a"), completed("b", "failed"))
    await receiver.wait_for(lambda: len(receiver.accepted) == 1)
    await batch.produce(queued("b", generation=2), completed("b", generation=2))
    await receiver.wait_for(lambda: len(receiver.accepted) == 2)
    await tenant.api.post("/v1/events", {**tenant.complete(completed("c")), "batch": {"name": "good"}})
    await receiver.wait_for(lambda: len(receiver.accepted) == 3)


async def fail_for_good(tenant: Tenant, receiver: Receiver) -> None:
    receiver.otherwise = 503
    webhook = await tenant.register(receiver, retry_schedule=[1])
    await tenant.produce(completed("exhausted", webhook_id=webhook["webhook_id"]))
    await tenant.delivery("failed", job="exhausted")
    await tenant.api.post(f"/v1/webhooks/{webhook['webhook_id']}/test")


async def go_away(tenant: Tenant, receiver: Receiver) -> None:
    """A 410 disables the webhook; what comes after is held."""
    receiver.otherwise = 410
    webhook = await tenant.register(receiver)
    await tenant.produce(completed("gone", webhook_id=webhook["webhook_id"]))
    await receiver.wait_for(1)

    async def disabled() -> bool:
        return (await tenant.api.get(f"/v1/webhooks/{webhook['webhook_id']}"))["state"] == "disabled"

    await eventually(disabled)
    await tenant.produce(completed("held", webhook_id=webhook["webhook_id"]))
    await tenant.delivery("held", job="held")


async def answer_oddly(tenant: Tenant, receiver: Receiver) -> None:
    """A cut connection, a late answer, a redirect, a 4xx, at last a success; and nobody at all."""
    receiver.answer(DROP, Answer(200, delay=1.5), Answer(302, {"location": "/"}), 404)
    webhook = await tenant.register(receiver, retry_schedule=QUICK, timeout_seconds=1)
    nobody = await tenant.api.post("/v1/webhooks", {"url": NOBODY, "retry_schedule": LATER})
    await tenant.produce(completed("odd", webhook_id=webhook["webhook_id"]))
    await tenant.produce(completed("nobody", webhook_id=nobody["webhook_id"]))
    await receiver.wait_for(lambda: any(arrival.accepted for arrival in receiver.arrivals[4:]))
    await tenant.delivery("retrying", job="nobody")


async def supersede_and_cancel(tenant: Tenant, receiver: Receiver) -> None:
    receiver.otherwise = 500
    batch = tenant.batch("refused")
    await batch.register(receiver, retry_schedule=LATER)
    await batch.produce(completed("d"))
    await receiver.wait_for(1)
    await batch.delivery("retrying")
    await batch.produce(completed("e"))
    await batch.delivery("superseded")
    await receiver.wait_for(2)
    await batch.delivery("retrying")
    await tenant.api.delete(f"{batch.path}/webhook")
    await batch.delivery("canceled")


async def send_nonsense(tenant: Tenant) -> None:
    """Poison, a tombstone, times that go backwards, two destinations, a rerun without a new generation."""
    webhook = await tenant.api.post("/v1/webhooks", {"url": NOBODY, "retry_schedule": LATER})
    await tenant.topic._producer.send_and_wait(tenant.topic.name, b"\xff{", key=b"poison", partition=0)
    await tenant.topic._producer.send_and_wait(tenant.topic.name, None, key=b"tombstone", partition=0)
    early = "2020-01-01T00:00:00Z"
    await tenant.produce(
        queued("odd-times", attempts=1),
        completed("odd-times", started_at=now(), completed_at=early, attempts=1),
        queued("odd-times", attempts=7),
        completed("twice", webhook_id=webhook["webhook_id"], webhook_url=NOBODY),
        completed("twice", "failed"),
        completed("cut", metadata="no object"),
        partition=0,
    )
    await tenant.until_known("cut")


# --- What Prometheus makes of it ----------------------------------------------------------------------------------


def test_f75_every_expression_of_every_panel_gives_data_with_the_labels_it_groups_by(observed):
    for shown in list_shown():
        samples = real_samples(observed.ask(fill_in(shown.expr, WINDOW)))
        assert samples, str(shown)
        groupings = list_groupings(shown.expr)
        if groupings and groupings[0]:
            assert all(set(labels) >= groupings[0] for labels, _ in samples), (str(shown), samples)


def test_every_expression_of_every_rule_gives_data_with_the_labels_it_groups_by(observed):
    for rule in load_rules():
        for side in list_sides(rule["expr"]):
            samples = observed.ask(side)
            assert samples, f"{name_of(rule)}: {side}"
            for grouping in list_groupings(side)[:1]:
                assert all(set(labels) >= grouping for labels, _ in samples), (name_of(rule), side, samples)


def test_every_variable_has_values(observed):
    for dashboard in load_dashboards().values():
        for variable in dashboard["templating"]["list"][1:]:
            series, label = variable["definition"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            values = observed.portal.call(
                lambda label=label, series=series: observed.prometheus.get(
                    f"label/{label}/values", **{"match[]": fill_in(series, WINDOW)}
                )
            )
            assert values, variable["name"]


def test_the_rules_evaluate_and_exactly_the_expected_alerts_fire(observed):
    groups = observed.portal.call(observed.prometheus.get, "rules")["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
    assert observed.portal.call(observed.prometheus.list_firing) == FIRING


MOVED = (  # what the drive must have moved: a metric that nobody feeds shows here
    'webhookd_job_events_total{outcome="applied"}',
    'webhookd_job_events_total{outcome="dead_letter"}',
    'webhookd_job_events_total{outcome="tombstone"}',
    'webhookd_job_events_total{outcome="conflict"}',
    'webhookd_job_events_total{outcome="requeue_without_generation"}',
    "webhookd_job_event_lag_seconds_count",
    'webhookd_messages_total{scope="batch", renotified="false"}',
    'webhookd_messages_total{scope="batch", renotified="true"}',
    'webhookd_messages_total{scope="job", renotified="false"}',
    'webhookd_messages_total{scope="none", renotified="false"}',
    'webhookd_attempts_total{outcome="delivered", status_class="2xx"}',
    'webhookd_attempts_total{outcome="http_error", status_class="5xx"}',
    'webhookd_attempts_total{outcome="http_error", status_class="4xx"}',
    'webhookd_attempts_total{outcome="gone"}',
    'webhookd_attempts_total{outcome="redirect"}',
    'webhookd_attempts_total{outcome="reset"}',
    'webhookd_attempts_total{outcome="timeout"}',
    'webhookd_attempts_total{outcome="connect_error"}',
    'webhookd_attempt_duration_seconds_sum{outcome="delivered"}',
    "webhookd_delivery_latency_seconds_sum",
    "webhookd_first_attempt_delay_seconds_sum",
    "webhookd_slot_wait_seconds_count",
    'webhookd_deliveries_finished_total{state="delivered"}',
    'webhookd_deliveries_finished_total{state="failed"}',
    'webhookd_deliveries_finished_total{state="superseded"}',
    'webhookd_deliveries_finished_total{state="canceled"}',
    "webhookd_deliveries_pending",
    "webhookd_deliveries_held",
    'webhookd_webhooks{state="enabled"}',
    'webhookd_webhooks{state="disabled"}',
    "webhookd_partitions_ahead",
    "webhookd_db_pool_size",
    "webhookd_clock_skew_seconds",
    'webhookd_event_anomalies_total{kind="negative_span"}',
    'webhookd_event_anomalies_total{kind="decoration_dropped"}',
    'webhookd_event_anomalies_total{kind="two_destinations"}',
    "webhookd_webhook_disabled_total",
    "webhookd_dead_letters_total",
    "webhookd_claims_total",
    "webhookd_build_info",
)


@pytest.mark.parametrize("series", MOVED)
def test_the_service_feeds_it(observed, series):
    assert any(value for _, value in observed.ask(f"max_over_time({series}[10m])")), series


def test_the_number_of_series_does_not_follow_the_number_of_webhooks(observed):
    counts = observed.ask('count by (job) ({__name__=~"webhookd_.+"})')
    assert counts[0][1] < 700
