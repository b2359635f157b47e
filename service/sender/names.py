"""Internationalised host names in their ASCII form, by the ``idna`` package (IDNA 2008 with UTS 46 mapping).

The policy carries this function, so registration, guard and dialling agree on the name.
"""

from __future__ import annotations

import idna


def ascii_host(host: str) -> str:
    """``straße.example`` becomes ``xn--strae-oqa.example``; raises UnicodeError for a name that has no such form."""
    return idna.encode(host, uts46=True, transitional=False).decode("ascii")
