"""Emulated boards: what takes long to make is shared by all tests and by the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared_cache import SHARED


@pytest.fixture(autouse=True)
def shared_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root file systems, machines and payloads are kept below the repository; devices are the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(SHARED))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
