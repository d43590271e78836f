"""The epochs of boards: their reference times, those that drifted, and which epoch a record is of."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0004"
down_revision = "0003"

_NUMBER = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
_KEY = sql.String(64)
_NAME = sql.String(200)


def upgrade() -> None:
    """Add the column, which no earlier record fills, and make the tables."""
    op.add_column("records", sql.Column("epoch", _KEY, nullable=False, server_default=""))
    op.drop_index("records_by_task", "records")
    names = ["profile_key", "workload_hash", "median_s", "rule", "space_version"]
    op.create_index("records_by_task", "records", [*names, "measured_in", "candidate_key", "id", "epoch"])
    op.create_table(
        "board_epochs",
        sql.Column("id", _NUMBER, primary_key=True),
        sql.Column("epoch", _KEY, nullable=False, unique=True),
        sql.Column("board", _NAME, nullable=False),
        sql.Column("name", _NAME, nullable=False),
        sql.Column("began_at", sql.Float(53), nullable=False),
        sql.Column("content", sql.String(16384), nullable=False),
    )
    op.create_index("board_epochs_by_board", "board_epochs", ["board", "id"])
    op.create_table(
        "board_drifts",
        sql.Column("epoch", _KEY, sql.ForeignKey("board_epochs.epoch"), primary_key=True),
        sql.Column("reason", sql.String(400), nullable=False),
        sql.Column("found_by", _NAME, nullable=False),
        sql.Column("found_at", sql.Float(53), nullable=False),
    )


def downgrade() -> None:
    """Drop the tables and the column; the line of a record keeps its epoch."""
    op.drop_table("board_drifts")
    op.drop_table("board_epochs")
    op.drop_index("records_by_task", "records")
    op.drop_column("records", "epoch")
    names = ["profile_key", "workload_hash", "median_s", "rule", "space_version"]
    op.create_index("records_by_task", "records", [*names, "measured_in", "candidate_key", "id"])
