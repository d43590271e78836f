"""The first tables: records that were measured, without a version."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the table of records and its index by task."""
    op.create_table(
        "records",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("workload_hash", sql.String(64), nullable=False),
        sql.Column("profile_key", sql.String(64), nullable=False),
        sql.Column("candidate_key", sql.String(64), nullable=False),
        sql.Column("median_s", sql.Float, nullable=False),
        sql.Column("made_at", sql.String(40), nullable=False),
        sql.Column("content", sql.JSON, nullable=False),
    )
    op.create_index("by_task", "records", ["workload_hash", "profile_key", "median_s"])
