"""One structured line per event, and nothing secret in any of them.

Belongs here: how lines are made and where they go (``sink``), what is masked in them (``redaction``). Does not belong
here: deciding what is worth a line. Callers pass facts; they do not have to know what is secret.
"""

from __future__ import annotations

from service.logs.redaction import REDACTED, Redactor
from service.logs.sink import Logger, configure, get_logger

__all__ = ["REDACTED", "Logger", "Redactor", "configure", "get_logger"]
