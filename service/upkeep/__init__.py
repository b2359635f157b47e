"""What one process at a time does beside delivering: named loops of a page each (chapters 5 and 6).

Belongs here: settle, reconcile, rescue, release, partitions, retention, gauges, replays. Does not belong here: SQL, and
anything that a delivery waits for.
"""
