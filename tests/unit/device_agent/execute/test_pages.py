"""Memory in huge pages: when it is asked for, and what it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from device_agent.execute import shared_memory, virtual_machine
from device_agent.execute.memory import pages
from device_agent.execute.virtual_machine import _Parameters
from device_agent.store.opened_bundle import BundleError

ENTRIES = [
    {"shape": [3, 4], "dtype": "float32", "offset": 64},
    {"shape": [5], "dtype": "uint8", "offset": 128},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("[always] madvise never", True), ("always [madvise] never", True), ("always madvise [never]", False)],
)
def test_the_system_says_whether_it_has_huge_pages(tmp_path: Path, text: str, expected: bool) -> None:
    setting = tmp_path / "enabled"
    setting.write_text(text + "\n")
    assert pages.has_huge_pages(str(setting)) is expected
    assert not pages.has_huge_pages(str(tmp_path / "missing"))


def test_a_copy_leaves_as_much_memory_as_it_takes(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:        9000 kB\nMemAvailable:    2048 kB\n")
    assert pages.has_room(1 << 20, str(meminfo))
    assert not pages.has_room((1 << 20) + 1, str(meminfo))
    assert not pages.has_room(1, str(tmp_path / "missing"))
    meminfo.write_text("MemTotal:        9000 kB\n")
    assert not pages.has_room(1, str(meminfo))


@pytest.mark.parametrize("size", [0, 1, 4097, 3 << 20])
def test_memory_is_zero_aligned_and_writable_to_its_end(size: int) -> None:
    memory, address = pages.zeroed(size)
    held = np.frombuffer(memory, np.uint8)[:size]
    assert address % (2 << 20) == 0 and not held.any()
    held[-1:] = 7
    assert bytes(memory)[:size].endswith(b"\7") or size == 0


@pytest.mark.parametrize(
    ("target", "further", "mapped", "expected"),
    [
        ("llvm", {"decoder": {"context": 1}}, False, True),
        ("llvm", {"decoder": {"context": 1}}, True, False),
        ("llvm", {"streamed": True}, False, True),
        ("llvm", {"streamed": True}, True, False),
        ("llvm", {}, False, False),
        ("cuda", {"decoder": {"context": 1}}, False, False),
        ("cuda", {"streamed": True}, False, False),
    ],
)
def test_weights_that_a_call_reads_once_are_copied_unless_they_are_to_be_mapped(
    target: str, further: dict[str, Any], mapped: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[bool] = []

    def parameters(path: str, entries: Any, streamed: bool) -> Any:
        copied.append(streamed)
        raise BundleError("enough is known")

    monkeypatch.setattr(virtual_machine, "_Parameters", parameters)
    monkeypatch.setattr(shared_memory, "is_shared", lambda: False)
    signature = {"inputs": [], "outputs": []}
    fields = {"target": {"kind": target}, "files": {}, "signature": signature, **further}
    manifest = SimpleNamespace(fields=fields)
    opened = SimpleNamespace(bundle=SimpleNamespace(manifest=manifest, directory="x"))
    with pytest.raises(BundleError, match="enough is known"):
        virtual_machine.load_machine(cast(Any, opened), 1, mapped)
    assert copied == [expected]


@pytest.mark.parametrize("available", [True, False])
def test_weights_are_the_same_in_huge_pages_and_mapped(
    available: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = np.random.default_rng(0).integers(0, 256, 200, np.uint8)
    path = tmp_path / "params.bin"
    path.write_bytes(content.tobytes())
    monkeypatch.setattr(pages, "has_huge_pages", lambda: available)
    first, second = _Parameters(str(path), ENTRIES, streamed=True).tensors
    assert np.from_dlpack(first).tobytes() == content[64:112].tobytes()
    assert np.from_dlpack(second).tobytes() == content[128:133].tobytes()
    with pytest.raises(BundleError, match="does not fit"):
        _Parameters(str(path), [{"shape": [80], "dtype": "uint8", "offset": 128}], streamed=True)
