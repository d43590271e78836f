from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from host.build.cache import KernelCache
from host.places import cache_root

KEY = "ab" + "0" * 62


def test_root_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "edgetlm"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "edgetlm"


def test_gives_back_what_was_put(cache: KernelCache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"
    assert KernelCache(cache.folder).get(KEY) == b"object"


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damaged_entry_counts_as_missing(cache: KernelCache, damage: str) -> None:
    cache.put(KEY, b"x" * 1000)
    (path,) = cache.folder.glob("*/*")
    raw = path.read_bytes()
    path.write_bytes({"truncate": raw[:-1], "flip": raw[:-1] + b"y", "empty": b""}[damage])
    assert cache.get(KEY) is None
    cache.put(KEY, b"again")
    assert cache.get(KEY) == b"again"


def test_unwritable_cache_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "kernels")
    cache.put(KEY, b"object")
    assert cache.get(KEY) is None
    assert cache.prune() == 0


def test_prune_removes_the_least_recently_used(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, limit_bytes=2500)
    keys = [f"{i:02d}" + "0" * 62 for i in range(4)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        (path,) = tmp_path.glob(f"{key[:2]}/*")
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # reading makes it the youngest
    assert cache.prune() == 2
    assert [key for key in keys if cache.get(key) is not None] == [keys[0], keys[3]]


def test_prune_removes_what_a_killed_writer_left(cache: KernelCache) -> None:
    cache.put(KEY, b"object")
    fresh, stale = cache.folder / "ab" / "fresh.tmp", cache.folder / "ab" / "stale.tmp"
    fresh.write_bytes(b"half")
    stale.write_bytes(b"half")
    os.utime(stale, (time.time() - 7200,) * 2)
    assert cache.prune() == 1
    assert fresh.exists()
    assert not stale.exists()
    assert cache.get(KEY) == b"object"


WRITER = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("cache", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
cache = module.KernelCache(pathlib.Path(sys.argv[2]), limit_bytes=100_000)
seen = 0
for _ in range(200):
    content = cache.get(sys.argv[3])
    assert content in (None, b"z" * 50_000), "a torn read"
    seen += content is not None
    cache.put(sys.argv[3], b"z" * 50_000)
    cache.prune()
print(seen)
"""


def test_several_processes_never_read_half_an_entry(cache: KernelCache) -> None:
    source = sys.modules[KernelCache.__module__].__file__
    assert source is not None
    command = [sys.executable, "-c", WRITER, source, str(cache.folder), KEY]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert all(int(output) > 0 for output in outputs)
    assert cache.get(KEY) == b"z" * 50_000
    assert not list(cache.folder.glob("*/*.tmp"))
