"""Settings that are fine alone and unsafe together.

Belongs here: one small rule per combination, each naming the setting to change. Does not belong here: ranges of single
values (``fields``) and what a command cannot do without (``loading``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from service.config.durations import format_duration
from service.config.fields import Fields
from service.domain.webhooks import TIMEOUT_BOUNDS

LONGEST_TIMEOUT = timedelta(seconds=TIMEOUT_BOUNDS[1])  # the longest that a webhook may ask for


def list_conflicts(settings: Fields) -> list[str]:
    """One line per unsafe combination, ``NAME: what is wrong``; none of them repeats a secret."""
    return [line for rule in _RULES for line in rule(settings)]


def _lease(settings: Fields) -> Iterator[str]:
    needed = LONGEST_TIMEOUT + settings.lease_margin
    if settings.lease < needed:
        yield (
            f"WEBHOOKD_LEASE: {format_duration(settings.lease)} is shorter than the longest timeout"
            f" ({format_duration(LONGEST_TIMEOUT)}) plus WEBHOOKD_LEASE_MARGIN ({format_duration(settings.lease_margin)});"
            f" at least {format_duration(needed)} is needed, or deliveries would be sent twice"
        )


def _kafka_login(settings: Fields) -> Iterator[str]:
    mechanism = settings.kafka_sasl_mechanism
    if not settings.kafka_security_protocol.startswith("SASL_"):
        if mechanism:
            yield "WEBHOOKD_KAFKA_SASL_MECHANISM: has no effect unless WEBHOOKD_KAFKA_SECURITY_PROTOCOL is SASL_…"
    elif not mechanism:
        yield "WEBHOOKD_KAFKA_SASL_MECHANISM: is needed with a SASL_ security protocol"
    elif mechanism == "OAUTHBEARER":
        if not settings.kafka_sasl_token.get_secret_value():
            yield "WEBHOOKD_KAFKA_SASL_TOKEN: is needed with OAUTHBEARER (or WEBHOOKD_KAFKA_SASL_TOKEN_FILE)"
    elif not settings.kafka_sasl_username or not settings.kafka_sasl_password.get_secret_value():
        yield f"WEBHOOKD_KAFKA_SASL_PASSWORD: is needed, with WEBHOOKD_KAFKA_SASL_USERNAME, for {mechanism}"


def _kafka_loops(settings: Fields) -> Iterator[str]:
    for name, topic in (
        ("KAFKA_DLQ_TOPIC", settings.kafka_dlq_topic),
        ("OPERATIONAL_TOPIC", settings.operational_topic),
    ):
        if topic in settings.kafka_topics:
            yield f"WEBHOOKD_{name}: is one of WEBHOOKD_KAFKA_TOPICS; webhookd would read what it writes"
        elif topic and not settings.kafka_bootstrap_servers:
            yield f"WEBHOOKD_{name}: cannot be written without WEBHOOKD_KAFKA_BOOTSTRAP_SERVERS"


def _ports(settings: Fields) -> Iterator[str]:
    same_port = settings.api_port == settings.ops_port != 0
    if same_port and settings.api_host == settings.ops_host:
        yield "WEBHOOKD_OPS_PORT: is also WEBHOOKD_API_PORT; probes and metrics have a port of their own"


_RULES: tuple[Callable[[Fields], Iterator[str]], ...] = (
    _lease,
    _kafka_login,
    _kafka_loops,
    _ports,
)
