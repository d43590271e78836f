"""A key for every record, its space version, room for failures, and records of MetaSchedule."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sql
from alembic import op

from host.records.database.rows import BATCH, insert_new
from host.records.record import record_of

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables and copy the records, each once.

    Raises:
        ValueError: a row is damaged; the message has its number.
    """
    connection = op.get_bind()
    connection.execute(sql.text("CREATE TEMPORARY TABLE records_before AS SELECT * FROM records"))
    op.drop_table("records")
    records = _records()
    _others()
    last = -1
    query = sql.text("SELECT id, content FROM records_before WHERE id > :last ORDER BY id LIMIT :count")
    while rows := connection.execute(query, {"last": last, "count": BATCH}).all():
        insert_new(connection, records, [_row(number, content) for number, content in rows], "record_key")
        last = rows[-1][0]
    op.drop_table("records_before")


def _records() -> sql.Table:
    records = op.create_table(
        "records",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("record_key", sql.String(64), nullable=False, unique=True),
        sql.Column("workload_hash", sql.String(64), nullable=False),
        sql.Column("profile_key", sql.String(64), nullable=False),
        sql.Column("candidate_key", sql.String(64), nullable=False),
        sql.Column("space_version", sql.Integer, nullable=False),
        sql.Column("median_s", sql.Float(53)),
        sql.Column("made_at", sql.String(40), nullable=False),
        sql.Column("content", sql.Text, nullable=False),
    )
    op.create_index(
        "records_by_task", "records", ["workload_hash", "profile_key", "space_version", "median_s"]
    )
    op.create_index("records_by_profile", "records", ["profile_key", "space_version", "id"])
    return records


def _others() -> None:
    op.create_table(
        "foreign_workloads",
        sql.Column("workload_key", sql.String(64), primary_key=True),
        sql.Column("content", sql.Text, nullable=False),
    )
    op.create_table(
        "foreign_records",
        sql.Column("id", sql.Integer, primary_key=True),
        sql.Column("record_key", sql.String(64), nullable=False, unique=True),
        sql.Column("workload_hash", sql.String(64), nullable=False),
        sql.Column(
            "workload_key",
            sql.String(64),
            sql.ForeignKey("foreign_workloads.workload_key"),
            nullable=False,
        ),
        sql.Column("median_s", sql.Float(53)),
        sql.Column("content", sql.Text, nullable=False),
    )
    # Programs from before alembic look here for the version.
    op.create_table(
        "meta",
        sql.Column("name", sql.String(64), primary_key=True),
        sql.Column("value", sql.String(64), nullable=False),
    )


def _row(number: int, content: Any) -> dict[str, Any]:
    line = content if isinstance(content, str) else json.dumps(content)
    try:
        record = record_of(line)
    except ValueError as error:
        raise ValueError(f"row {number} is damaged ({error})") from error
    return {
        "record_key": record.record_key,
        "workload_hash": record.candidate.workload_hash,
        "profile_key": record.profile_key,
        "candidate_key": record.candidate_key,
        "space_version": record.candidate.space_version,
        "median_s": record.median_s,
        "made_at": record.made_at,
        "content": line,
    }
