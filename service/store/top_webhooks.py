"""Which webhooks stand out, for operators at 3 a.m.: by index, with every count bounded.

Belongs here: one statement per question.
"""

from __future__ import annotations

from service.store.database import Row, Session

STATEMENTS = {
    "pending": "top_pending",
    "oldest": "top_oldest",
    "failing": "top_failing",
    "slots": "top_slots",
}


async def list_top(session: Session, by: str, limit: int) -> list[Row]:
    """Return the worst webhooks first; ``by`` is a key of ``STATEMENTS``."""
    return await session.fetch(STATEMENTS[by], limit)
