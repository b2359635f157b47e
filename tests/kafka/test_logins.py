"""A real broker that asks who is there: TLS, and every SASL mechanism that there is a setting for."""

import base64
import json
import time

import pytest

from service.ingest.broker import BrokerUnavailable, KafkaOptions, Producer
from tests.e2e.story import completed, new_tenant
from tests.support.kafka import PASSWORD, USER
from tests.support.service import build_settings

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [
    ("SSL", ""),
    *((protocol, each) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for each in (*PASSWORDS, "OAUTHBEARER")),
]


def build_token():
    """One that a broker takes which checks no signatures."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def options_of(kafka, topic, protocol, mechanism, **changes):
    login = {
        "bootstrap_servers": (kafka.listeners[protocol],),
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": lambda: PASSWORD,
        "sasl_token": build_token,
        "ca_file": kafka.authority.ca_file,
        "request_timeout": 5.0,
    }
    return KafkaOptions(topics=(topic,), group_id=topic, **{**login, **changes})


async def write(options, topic):
    producer = Producer(options, topic)
    try:
        await producer.open()
        await producer.send(b"k", b"v", [])
    finally:
        await producer.close(5)


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
async def test_who_may_is_let_in(kafka, topic, protocol, mechanism):
    await write(options_of(kafka, topic, protocol, mechanism), topic)


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_wrong_password_is_an_outage(kafka, topic, mechanism):
    wrong = options_of(kafka, topic, "SASL_SSL", mechanism, sasl_password=lambda: "wrong")
    with pytest.raises(BrokerUnavailable):
        await write(wrong, topic)


async def test_a_broker_of_another_authority_is_an_outage(kafka, topic):
    with pytest.raises(BrokerUnavailable):
        await write(options_of(kafka, topic, "SASL_SSL", "PLAIN", ca_file=None), topic)


async def test_the_service_logs_in_with_a_password_from_a_file(
    kafka, settings, opened, new_service, receiver, tmp_path
):
    (tmp_path / "password").write_text(PASSWORD)
    login = build_settings(
        kafka_bootstrap_servers=kafka.listeners["SASL_SSL"],
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username=USER,
        kafka_sasl_password_file=tmp_path / "password",
        kafka_ca_file=kafka.authority.ca_file,
    )
    guarded = {**settings, **{name: value for name, value in login.items() if name.startswith("WEBHOOKD_KAFKA_")}}
    async with new_service(guarded) as service, new_tenant(service, opened) as tenant:
        await tenant.register(receiver, event_types=["*"], scopes=["job"])
        await tenant.produce(completed("A"))
        await receiver.wait_for(1)
        assert PASSWORD not in service.tail()
        assert await service.stop() == 0, service.tail()
