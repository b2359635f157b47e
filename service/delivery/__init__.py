"""From a due delivery to a recorded outcome: claim, slots and fairness, attempt, record (chapter 5).

Belongs here: the engine's use cases, on ports that are declared next to their users. Does not belong here: SQL
(``service.store``), sockets (``service.sender``), what an outcome means (``service.domain``).
"""
