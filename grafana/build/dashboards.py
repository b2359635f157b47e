"""All dashboards, in the order of their links."""

from __future__ import annotations

from grafana.build.delivery_engine import DELIVERY_ENGINE
from grafana.build.ingest_and_batches import INGEST_AND_BATCHES
from grafana.build.overview import OVERVIEW
from grafana.build.webhook_health import WEBHOOK_HEALTH

DASHBOARDS = (OVERVIEW, DELIVERY_ENGINE, INGEST_AND_BATCHES, WEBHOOK_HEALTH)
