"""Fixtures of the survival suite: those of the tests over a real Apache Kafka, and a PostgreSQL that can be harmed."""

from tests.kafka.conftest import new_service, opened, receiver, settings

__all__ = ["new_service", "opened", "receiver", "settings"]
