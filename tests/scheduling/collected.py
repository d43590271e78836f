"""The tests that a run has found, before those are left out that it was not asked for."""

from __future__ import annotations

import pytest

COLLECTED = pytest.StashKey[frozenset[str]]()
