"""Columns and an index for the best programs of a whole model, and the leases of boards."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sql
from alembic import op

from host.records.database.rows import BATCH

revision = "0003"
down_revision = "0002"

_NUMBER = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
_RECORDS = sql.table("records", *map(sql.column, ("id", "content", "rule", "measured_in")))
# The schema bounds the columns; a row of another host may have any value.
_RULE_CHARACTERS, _PLACE_CHARACTERS = 256, 16
_MODEL = "model"


def upgrade() -> None:
    """Add the columns, fill them, and make the tables of the leases."""
    # The revision is alembic's to keep.
    op.drop_table("meta")
    for name, length in (("rule", _RULE_CHARACTERS), ("measured_in", _PLACE_CHARACTERS)):
        column = sql.Column(name, sql.String(length), nullable=False, server_default="")
        op.add_column("records", column)
    _fill()
    op.drop_index("records_by_task", "records")
    names = ["profile_key", "workload_hash", "median_s", "rule", "space_version"]
    op.create_index("records_by_task", "records", [*names, "measured_in", "candidate_key", "id"])
    if op.get_bind().dialect.name == "postgresql":
        for table in ("records", "foreign_records"):
            op.alter_column(table, "id", type_=sql.BigInteger(), existing_type=sql.Integer())
            op.execute(sql.text(f"ALTER SEQUENCE {table}_id_seq AS bigint"))
    _leases()


def _fill() -> None:
    connection = op.get_bind()
    query = sql.select(_RECORDS.c.id, _RECORDS.c.content).order_by(_RECORDS.c.id).limit(BATCH)
    change = (
        sql.update(_RECORDS)
        .where(_RECORDS.c.id == sql.bindparam("number"))
        .values(rule=sql.bindparam("new_rule"), measured_in=sql.bindparam("new_place"))
    )
    last = -1
    while rows := connection.execute(query.where(_RECORDS.c.id > last)).all():
        connection.execute(change, [_said(number, content) for number, content in rows])
        last = rows[-1][0]


def _said(number: int, content: Any) -> dict[str, Any]:
    """What a record says in its line; "" where it says nothing, or nothing that fits."""
    try:
        said = json.loads(content)
        rule, place = said["candidate"]["rule"], said["origin"].get("measured_in")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        rule = place = None
    fits = isinstance(rule, str) and len(rule) <= _RULE_CHARACTERS and rule.isprintable()
    return {
        "number": number,
        "new_rule": rule if fits else "",
        "new_place": _MODEL if place == _MODEL else "",
    }


def _leases() -> None:
    op.create_table(
        "leases",
        sql.Column("board", sql.String(200), primary_key=True),
        sql.Column("name", sql.String(200), nullable=False),
        sql.Column("ticket", sql.String(64), nullable=False),
        sql.Column("owner", sql.String(200), nullable=False),
        sql.Column("job", sql.String(200), nullable=False),
        sql.Column("since", sql.Float(53), nullable=False),
        sql.Column("renewed", sql.Float(53), nullable=False),
        sql.Column("until", sql.Float(53), nullable=False),
    )
    op.create_table(
        "lease_queue",
        sql.Column("id", _NUMBER, primary_key=True),
        sql.Column("board", sql.String(200), nullable=False),
        sql.Column("ticket", sql.String(64), nullable=False, unique=True),
        sql.Column("owner", sql.String(200), nullable=False),
        sql.Column("job", sql.String(200), nullable=False),
        sql.Column("since", sql.Float(53), nullable=False),
        sql.Column("until", sql.Float(53), nullable=False),
    )
    op.create_index("lease_queue_by_board", "lease_queue", ["board", "id"])
    op.create_table(
        "lease_releases",
        sql.Column("id", _NUMBER, primary_key=True),
        sql.Column("board", sql.String(200), nullable=False),
        sql.Column("ticket", sql.String(64), nullable=False),
        sql.Column("owner", sql.String(200), nullable=False),
        sql.Column("job", sql.String(200), nullable=False),
        sql.Column("released_by", sql.String(200), nullable=False),
        sql.Column("released_at", sql.Float(53), nullable=False),
    )
    op.create_index("lease_releases_by_ticket", "lease_releases", ["ticket"])


def downgrade() -> None:
    """Drop the leases and the columns, which the lines of the records have too."""
    for name in ("lease_releases", "lease_queue", "leases"):
        op.drop_table(name)
    op.drop_index("records_by_task", "records")
    for name in ("measured_in", "rule"):
        op.drop_column("records", name)
    names = ["workload_hash", "profile_key", "space_version", "median_s"]
    op.create_index("records_by_task", "records", names)
    # Numbers of rows stay as large as they are: programs of that version read them too.
    meta = op.create_table(
        "meta",
        sql.Column("name", sql.String(64), primary_key=True),
        sql.Column("value", sql.String(64), nullable=False),
    )
    op.bulk_insert(meta, [{"name": "schema_version", "value": "2"}])
