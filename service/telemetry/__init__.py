"""Metrics: the names, types and labels of chapter 6, and nothing that a peer can grow.

Belongs here: what is counted and how it is exposed. Does not belong here: alert rules (``grafana/``), the port it is
served on (``service.ops``), and log lines (``service.logs``).
"""

from __future__ import annotations

from service.telemetry.metrics import Telemetry
from service.telemetry.queue import QueueState

__all__ = ["QueueState", "Telemetry"]
