"""The schema, one numbered SQL file a revision; ``versions/`` tells Alembic their order.

Within a minor version revisions only expand: old code goes on serving while and after they run.
"""
