"""One HTTP attempt, made safely and cheaply: address guard, connections, reading the answer (chapters 3 and 5).

The seam is ``HttpSender.send``. Does not belong here: when to send, what to sign, what an outcome leads to.
"""

from __future__ import annotations

from service.sender.posting import HttpSender, SenderLimits
from service.sender.tls import build_tls_context

__all__ = ["HttpSender", "SenderLimits", "build_tls_context"]
