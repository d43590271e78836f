"""Where the product keeps what it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from host.places import zig_cache


def test_zig_keeps_its_libraries_where_it_does_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "given"))
    assert zig_cache(tmp_path / "cache") == tmp_path / "given"
    # An empty one is none.
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "")
    assert zig_cache(tmp_path / "cache") == tmp_path / "cache" / "zig"
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR")
    assert zig_cache(tmp_path / "cache") == tmp_path / "cache" / "zig"
