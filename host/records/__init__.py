"""Append-only store of every measurement ever made, with its provenance."""

from host.records.store import Record, RecordStore

__all__ = ["Record", "RecordStore"]
