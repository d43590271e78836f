"""Where the product keeps what it makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from host.places import zig_cache
from tests import shared_cache


def test_zig_keeps_its_libraries_where_it_does_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "given"))
    assert zig_cache(tmp_path / "cache") == tmp_path / "given"
    # An empty one is none.
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "")
    assert zig_cache(tmp_path / "cache") == tmp_path / "cache" / "zig"
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR")
    assert zig_cache(tmp_path / "cache") == tmp_path / "cache" / "zig"


def test_executors_of_the_tests_share_the_libraries_of_zig_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each C++ library takes a core most of a minute: the examples in C++ are linked with the same."""
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "elsewhere")
    found: list[str] = []

    def executor_for(architecture: str, jobs: int) -> Path:
        found.append(os.environ["ZIG_GLOBAL_CACHE_DIR"])
        return Path(architecture)

    monkeypatch.setattr(shared_cache, "executor_for", executor_for)
    shared_cache.main(["--jobs", "1"])
    assert found == [str(shared_cache.ZIG)] * len(shared_cache.ARCHITECTURES)
