"""What one process at a time does beside delivering: named loops of a page each (chapters 5 and 6).

Belongs here: electing who does it, and settle, reconcile, rescue, release, partitions, gauges, operational news. Does
not belong here: SQL, what upkeep does for the admin API (``store.admin_upkeep``: replays, roll-ups, pruning), and anything
that a delivery waits for.
"""
