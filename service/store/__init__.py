"""PostgreSQL through asyncpg: one statement a file under ``sql/``, the schema under ``migrations/``."""
