"""Indexes by which the best programs of a model are found without reading all records of its tasks."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the indexes."""
    op.create_index("records_by_program", "records", ["profile_key", "candidate_key"])
    inside = sql.text("measured_in <> ''")
    op.create_index(
        "records_in_models",
        "records",
        ["profile_key", "workload_hash"],
        postgresql_where=inside,
        sqlite_where=inside,
    )


def downgrade() -> None:
    """Drop the indexes."""
    op.drop_index("records_in_models", "records")
    op.drop_index("records_by_program", "records")
