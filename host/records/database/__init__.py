"""The database of records and leases: SQLite's file of one machine, or a server that many share."""

from host.records.database.access import Database, PatientTables
from host.records.database.problems import ServerAway, store_name
from host.records.database.rows import BATCH, database_clock, insert_new, inserting, row_of, within_memory
from host.records.database.tables import (
    DRIFTS,
    EPOCH_BYTES,
    EPOCHS,
    FOREIGN,
    LEASES,
    METADATA,
    QUEUE,
    RECORDS,
    RELEASES,
    REVISION,
    WORKLOADS,
)

__all__ = [
    "BATCH",
    "DRIFTS",
    "EPOCHS",
    "EPOCH_BYTES",
    "FOREIGN",
    "LEASES",
    "METADATA",
    "QUEUE",
    "RECORDS",
    "RELEASES",
    "REVISION",
    "WORKLOADS",
    "Database",
    "PatientTables",
    "ServerAway",
    "database_clock",
    "insert_new",
    "inserting",
    "row_of",
    "store_name",
    "within_memory",
]
