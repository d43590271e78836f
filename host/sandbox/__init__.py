"""Processes with hardly any rights, for what reads files of unknown origin. See docs/decisions/0008."""

from __future__ import annotations

from host.sandbox.worker import Limits, Outcome, Unforeseen, Worker, WorkerLost, forked, scratch_folder

__all__ = ["Limits", "Outcome", "Unforeseen", "Worker", "WorkerLost", "forked", "scratch_folder"]
