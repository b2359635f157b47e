"""What a process has counted so far."""

from __future__ import annotations

from service.telemetry import Telemetry


def samples(telemetry: Telemetry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in telemetry.registry.collect()
        for sample in family.samples
    }


def value(telemetry: Telemetry, name: str, **labels: str) -> float:
    return samples(telemetry)[f"webhookd_{name}", frozenset(labels.items())]
