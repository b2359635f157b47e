"""Names of tenants, batches and jobs: which texts may be one (chapter 2)."""

from __future__ import annotations

import unicodedata

MAX_NAME = 255


def is_name(text: str) -> bool:
    """Tell whether a text may name a tenant, batch or job: 1-255 code points, none Cc or Cs, not ``.`` or ``..``."""
    if not 1 <= len(text) <= MAX_NAME or text in {".", ".."}:
        return False
    return not any(unicodedata.category(character) in {"Cc", "Cs"} for character in text)
