"""JetPack by its files; their lines are those of NVIDIA's documentation (see device_agent.board.jetson)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_agent.board import jetson
from device_agent.board.machine import Machine

_LINE = "# R%s (release), REVISION: %s, GCID: 33958178, BOARD: t186ref, EABI: aarch64, DATE: Tue Aug 1\n"


def system(root: Path, release: tuple[str, str] | None = None, tool_kit: str = "") -> Path:
    """A file system with what a Jetson has."""
    if release is not None:
        (root / "etc").mkdir(parents=True)
        (root / "etc" / "nv_tegra_release").write_text(_LINE % release)
    if tool_kit:
        folder = root / "usr" / "local" / "cuda"
        folder.mkdir(parents=True)
        content = {"cuda": {"name": "CUDA SDK", "version": tool_kit}, "cuda_cudart": {"version": "1"}}
        (folder / "version.json").write_text(json.dumps(content))
    return root


@pytest.mark.parametrize(
    ("release", "cuda"),
    [
        (("35", "4.1"), "11.4"),
        (("36", "3.0"), "12.2"),
        (("36", "4.3"), "12.6"),
        (("38", "2.0"), "13.0"),
        (("32", "7.4"), "10.2"),
    ],
)
def test_driver_without_a_tool_kit(release: tuple[str, str], cuda: str, tmp_path: Path) -> None:
    found = jetson.software(str(system(tmp_path, release)))
    assert found == {"l4t": ".".join(release), "cuda": cuda}


def test_the_tool_kit_says_it_best(tmp_path: Path) -> None:
    found = jetson.software(str(system(tmp_path, ("36", "4.3"), "12.6.68")))
    assert found == {"l4t": "36.4.3", "cuda": "12.6.68"}


def test_other_machines_have_none(tmp_path: Path) -> None:
    assert jetson.software(str(tmp_path)) == {}
    folder = system(tmp_path, tool_kit="12.4.1")
    assert jetson.software(str(folder)) == {"cuda": "12.4.1"}
    (folder / "usr" / "local" / "cuda" / "version.json").write_text("not json")
    assert jetson.software(str(folder)) == {}


def test_the_agent_tells_the_host(tmp_path: Path) -> None:
    system(tmp_path, ("35", "4.1"))
    assert Machine(str(tmp_path)).describe()["software"]["cuda"] == "11.4"
