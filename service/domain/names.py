"""Names of tenants, batches and jobs: which texts may be one (chapter 2)."""

from __future__ import annotations

import unicodedata
from typing import Final

MAX_NAME: Final = 255
DOTS: Final = frozenset({".", ".."})  # which paths take for a place


def is_name(text: str) -> bool:
    """Tell whether a text may name a tenant, batch or job: 1-255 code points, none Cc or Cs, not ``.`` or ``..``."""
    if not 1 <= len(text) <= MAX_NAME or text in DOTS:
        return False
    return not any(unicodedata.category(character) in {"Cc", "Cs"} for character in text)
