"""The tables of records, leases and epochs, as the newest revision in `migrations` leaves them."""

from __future__ import annotations

import sqlalchemy as sql

# The revision that makes these tables; a test compares it and them with `migrations`.
REVISION = "0005"
# Where alembic keeps the revision of a database.
REVISION_TABLE = "alembic_version"

# SQLite gives numbers to rows by itself where the column is exactly an INTEGER.
_NUMBER = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
_KEY = sql.String(64)
# What an epoch holds, as JSON.
EPOCH_BYTES = 16384
# How the holder of a board, its job and the board itself are called.
_NAME = sql.String(200)

METADATA = sql.MetaData()
RECORDS = sql.Table(
    "records",
    METADATA,
    sql.Column("id", _NUMBER, primary_key=True),
    sql.Column("record_key", _KEY, nullable=False, unique=True),
    sql.Column("workload_hash", _KEY, nullable=False),
    sql.Column("profile_key", _KEY, nullable=False),
    sql.Column("candidate_key", _KEY, nullable=False),
    sql.Column("space_version", sql.Integer, nullable=False),
    # Null: it does not build or run.
    sql.Column("median_s", sql.Float(53)),
    sql.Column("made_at", sql.String(40), nullable=False),
    sql.Column("content", sql.Text, nullable=False),
    # "" where a row of an earlier revision has none.
    sql.Column("rule", sql.String(256), nullable=False, server_default=""),
    sql.Column("measured_in", sql.String(16), nullable=False, server_default=""),
    # Of the board that measured it; "" where that board's reference times were not kept.
    sql.Column("epoch", _KEY, nullable=False, server_default=""),
    # All that `best_of` reads: the database answers out of the index alone.
    sql.Index(
        "records_by_task",
        *("profile_key", "workload_hash", "median_s", "rule", "space_version"),
        *("measured_in", "candidate_key", "id", "epoch"),
    ),
    sql.Index("records_by_profile", "profile_key", "space_version", "id"),
    # Of the programs near the fastest one, every record; and whether kernels were measured inside of a model.
    sql.Index("records_by_program", "profile_key", "candidate_key"),
    sql.Index(
        "records_in_models",
        *("profile_key", "workload_hash"),
        postgresql_where=sql.text("measured_in <> ''"),
        sqlite_where=sql.text("measured_in <> ''"),
    ),
)
WORKLOADS = sql.Table(
    "foreign_workloads",
    METADATA,
    sql.Column("workload_key", _KEY, primary_key=True),
    sql.Column("content", sql.Text, nullable=False),
)
FOREIGN = sql.Table(
    "foreign_records",
    METADATA,
    sql.Column("id", _NUMBER, primary_key=True),
    sql.Column("record_key", _KEY, nullable=False, unique=True),
    sql.Column("workload_hash", _KEY, nullable=False),
    sql.Column("workload_key", sql.ForeignKey("foreign_workloads.workload_key"), nullable=False),
    sql.Column("median_s", sql.Float(53)),
    sql.Column("content", sql.Text, nullable=False),
)
# Times are seconds since 1970 by the clock of the database. A row stays when its board is released.
LEASES = sql.Table(
    "leases",
    METADATA,
    sql.Column("board", _NAME, primary_key=True),
    sql.Column("name", _NAME, nullable=False),
    # "" where no host has the board.
    sql.Column("ticket", _KEY, nullable=False),
    sql.Column("owner", _NAME, nullable=False),
    sql.Column("job", _NAME, nullable=False),
    sql.Column("since", sql.Float(53), nullable=False),
    sql.Column("renewed", sql.Float(53), nullable=False),
    sql.Column("until", sql.Float(53), nullable=False),
)
QUEUE = sql.Table(
    "lease_queue",
    METADATA,
    sql.Column("id", _NUMBER, primary_key=True),
    sql.Column("board", _NAME, nullable=False),
    sql.Column("ticket", _KEY, nullable=False, unique=True),
    sql.Column("owner", _NAME, nullable=False),
    sql.Column("job", _NAME, nullable=False),
    sql.Column("since", sql.Float(53), nullable=False),
    # Whoever stops asking loses the place.
    sql.Column("until", sql.Float(53), nullable=False),
    sql.Index("lease_queue_by_board", "board", "id"),
)
# Who took a board from whom.
RELEASES = sql.Table(
    "lease_releases",
    METADATA,
    sql.Column("id", _NUMBER, primary_key=True),
    sql.Column("board", _NAME, nullable=False),
    sql.Column("ticket", _KEY, nullable=False),
    sql.Column("owner", _NAME, nullable=False),
    sql.Column("job", _NAME, nullable=False),
    sql.Column("released_by", _NAME, nullable=False),
    sql.Column("released_at", sql.Float(53), nullable=False),
    sql.Index("lease_releases_by_ticket", "ticket"),
)
# What a board was and how long its reference programs took. Its last row is the present epoch.
EPOCHS = sql.Table(
    "board_epochs",
    METADATA,
    sql.Column("id", _NUMBER, primary_key=True),
    sql.Column("epoch", _KEY, nullable=False, unique=True),
    sql.Column("board", _NAME, nullable=False),
    sql.Column("name", _NAME, nullable=False),
    sql.Column("began_at", sql.Float(53), nullable=False),
    sql.Column("content", sql.String(EPOCH_BYTES), nullable=False),
    sql.Index("board_epochs_by_board", "board", "id"),
)
# Epochs that ended because the board's times drifted: their records are left out.
DRIFTS = sql.Table(
    "board_drifts",
    METADATA,
    sql.Column("epoch", sql.ForeignKey("board_epochs.epoch"), primary_key=True),
    sql.Column("reason", sql.String(400), nullable=False),
    sql.Column("found_by", _NAME, nullable=False),
    sql.Column("found_at", sql.Float(53), nullable=False),
)
# Those of earlier revisions too.
INDEXES = {"by_task"} | {index.name for table in METADATA.tables.values() for index in table.indexes}
