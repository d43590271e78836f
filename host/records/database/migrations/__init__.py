"""Revisions of the tables, which alembic applies; `host.records.database.upgrade` runs it."""
