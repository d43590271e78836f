"""Append-only store of every measurement ever made, with its provenance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from host.records.foreign import ForeignRecord
from host.records.origin import MODEL, RecordOrigin
from host.records.record import Record, profile_data
from host.records.summary import ForeignSummary, Summary

if TYPE_CHECKING:
    from host.records.store import RecordStore

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


def __getattr__(name: str) -> Any:
    # With it comes SQLAlchemy, for which a deployment where nothing was measured does not wait.
    if name == "RecordStore":
        from host.records.store import RecordStore

        return RecordStore
    raise AttributeError(f"module 'host.records' has no attribute {name!r}")
