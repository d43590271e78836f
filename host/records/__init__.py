"""Append-only store of every measurement ever made, with its provenance."""

from host.records.foreign import ForeignRecord
from host.records.origin import MODEL, RecordOrigin
from host.records.record import Record, profile_data
from host.records.store import ForeignSummary, RecordStore, Summary

__all__ = [
    "MODEL",
    "ForeignRecord",
    "ForeignSummary",
    "Record",
    "RecordOrigin",
    "RecordStore",
    "Summary",
    "profile_data",
]
