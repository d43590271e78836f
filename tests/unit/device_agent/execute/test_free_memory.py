"""A language model is refused where this machine has no memory for it, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from device_agent.execute import shared_memory, virtual_machine
from device_agent.execute.memory import pages
from device_agent.execute.memory.free_memory import MEMINFO, free_bytes, needed_bytes, require_free
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


def group(folder: Path, names: tuple[str, str, str], limit: int | str, used: int, idle: int) -> None:
    """Write the files of a control group."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\nactive_file 9\n{names[2]} {idle}\nslab 7\n")


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
# Of a machine with 1000 KiB: version, what /proc/self/cgroup says, groups with limit, use and idle pages, and
# what is left.
CASES: list[tuple[tuple[str, str, str], str, dict[str, tuple[int | str, int, int]], int]] = [
    (V2, "0::/", {}, 1_024_000),
    (V2, "0::/a/b", {"a/b": ("max", 9, 0), "a": ("max", 9, 0)}, 1_024_000),
    (V2, "0::/a/b", {"a/b": (5000, 3000, 200), "a": ("max", 9, 0)}, 2200),
    (V2, "0::/a/b", {"a/b": ("max", 3000, 200), "a": (9000, 8000, 0)}, 1000),
    (V2, "0::/", {"": (7000, 3000, 0)}, 4000),
    # The group itself is what the container has mounted, under a name from outside.
    (V2, "0::/docker/1", {"": (7000, 3000, 0)}, 4000),
    (V2, "0::/../x", {"": (7000, 3000, 0), "x": (1, 1, 0)}, 4000),
    (V2, "0::/a", {"a": (1000, 3000, 0)}, 0),
    (V2, "0::/a", {"b": (1000, 900, 0)}, 1_024_000),
    (V2, "nonsense\n0::/a", {"a": (5000, 3000, 0)}, 2000),
    (V1, "3:cpu:/\n4:memory:/a/b\n0::/", {"a": (5000, 3000, 200)}, 2200),
    (V1, "4:hugetlb,memory:/a", {"a": (5000, 3000, 0), "": (9223372036854771712, 9, 0)}, 2000),
]


def written(folder: Path, case: int) -> tuple[tuple[str, str, str], int]:
    """Write one of the cases; the arguments of `free_bytes`, and what it has to return."""
    names, own, groups, expected = CASES[case]
    root = folder / "groups"
    for path, values in groups.items():
        group(root / ("memory" if names == V1 else "") / path, names, *values)
    (folder / "own").write_text(own + "\n")
    return (with_free(folder, 1000), str(root), str(folder / "own")), expected


@pytest.mark.parametrize("case", range(len(CASES)))
def test_limits_of_control_groups_count(case: int, tmp_path: Path) -> None:
    arguments, expected = written(tmp_path, case)
    assert free_bytes(*arguments) == expected


def test_weights_are_not_copied_past_the_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, expected = written(tmp_path, 2)
    monkeypatch.setattr(pages, "free_bytes", lambda meminfo: free_bytes(meminfo, *arguments[1:]))
    assert pages.has_room(expected // 2, arguments[0]) and not pages.has_room(expected // 2 + 1, arguments[0])


@pytest.mark.parametrize(
    ("kind", "shared", "asked"), [("llvm", True, 1), ("cuda", True, 1), ("cuda", False, 0)]
)
def test_the_memory_of_a_gpu_is_not_that_of_the_machine(
    kind: str, shared: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(virtual_machine, "require_free", seen.append)
    monkeypatch.setattr(shared_memory, "is_shared", lambda: shared)
    # Loading ends behind the question.
    monkeypatch.setattr(virtual_machine, "signature_of", lambda fields: 1 / 0)
    manifest = SimpleNamespace(fields={"target": {"kind": kind}})
    opened = SimpleNamespace(bundle=SimpleNamespace(manifest=manifest, directory="x"))
    with pytest.raises(ZeroDivisionError):
        virtual_machine.load_machine(cast(Any, opened), 1)
    assert len(seen) == asked


def test_this_machine_says_what_it_has() -> None:
    found = free_bytes(MEMINFO)
    assert found is not None and found > _MIB
