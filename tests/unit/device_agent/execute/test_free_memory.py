"""A language model is refused where this machine has no memory for it, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.execute.free_memory import MEMINFO, free_bytes, needed_bytes, require_free
from device_agent.store.opened_bundle import BundleError

_MIB = 1 << 20
FIELDS: dict[str, Any] = {
    "files": {"params.bin": {"size": 3 * _MIB}},
    "state": [{"name": "keys", "shape": [_MIB], "dtype": "float16"}],
    "decoder": {"context": 64, "sequences": 2},
}


def with_free(folder: Path, kib: int | str) -> str:
    path = folder / "meminfo"
    path.write_text(f"MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:   {kib} kB\n")
    return str(path)


def test_weights_and_the_states_of_all_texts_are_needed(tmp_path: Path) -> None:
    assert needed_bytes(FIELDS) == 7 * _MIB
    require_free(FIELDS, with_free(tmp_path, 7 * 1024))
    with pytest.raises(BundleError, match=r"take 7\.0 MiB, this machine has 6\.9 MiB free: close other"):
        require_free(FIELDS, with_free(tmp_path, 7 * 1024 - 60))
    one = {**FIELDS, "decoder": {"context": 64}}
    assert needed_bytes(one) == 5 * _MIB


def test_other_models_are_not_and_a_system_that_says_nothing_refuses_nothing(tmp_path: Path) -> None:
    require_free({**FIELDS, "decoder": None}, with_free(tmp_path, 1))
    for said in ("", "x", "9" * 99):
        assert free_bytes(with_free(tmp_path, said)) is None
        require_free(FIELDS, with_free(tmp_path, said))
    assert free_bytes(str(tmp_path / "missing")) is None
    (tmp_path / "meminfo").write_bytes(b"\xff\xfe")
    assert free_bytes(str(tmp_path / "meminfo")) is None


def test_this_machine_says_what_it_has() -> None:
    found = free_bytes(MEMINFO)
    assert found is not None and found > _MIB
