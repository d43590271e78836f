"""Training in one thread, as the tests of the language model have it."""

from __future__ import annotations

from tests.unit.tlm.conftest import _one_thread

__all__ = ["_one_thread"]
