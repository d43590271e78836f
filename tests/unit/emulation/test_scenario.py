"""Files of simulated boards that somebody else wrote: bounded, and told in one line where they are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_agent.contract.text import is_printable
from host.emulation.scenario import read_scenario
from host.errors import UserError

GOOD = {"schema": "edgetlm-replay/1", "power": {"idle_w": 1.0, "active_w": 5.0}}


@pytest.mark.parametrize(
    "change",
    [
        {"title": "\x1b]0;PWN\x07"},
        {"title": "x" * 5000},
        {"seed": -1},
        {"seed": 1 << 70},
        {"machine": {"cpu_name": "a\nflags: x"}},
        {"machine": {"frequency_hz": 1e300}},
        {"machine": {"frequencies_hz": [1e9] * 5000}},
        {"latency": {"factor": 1e300}},
        {"latency": {"models": [{"name": "tvm", "seconds": 1e300}]}},
        {"latency": {"models": [{"name": "tvm", "seconds": 0.0}]}},
        {"latency": {"kernels": [{"name": "a\u202e", "seconds": 1.0}]}},
        {"power": {"idle_w": 1.0, "active_w": 1e300}},
        {"power": {"idle_w": 1.0, "active_w": 5.0, "update_ms": 1 << 62}},
        {"thermal": {"time_constant_s": 1e-300}},
        {"thermal": {"ambient_c": 1e300}},
        {"\x1b[31m": 1},
        {"machine": {"a": {"b": [[[[1]]]]}}},
        {"machine": [1]},
    ],
)
def test_what_no_board_is(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "board.json"
    path.write_text(json.dumps(GOOD))
    assert read_scenario(path).power.active_w == 5.0
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(UserError) as caught:
        read_scenario(path)
    assert is_printable(str(caught.value)) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("board.json", b"[" * 200_000),
        ("board.json", b"[1]"),
        ("board.json", b'{"schema": "edgetlm-replay/1", "schema": 1}'),
        ("board.json", b'{"seed": NaN}'),
        ("board.json", b'{"seed": 1' + b"0" * 100_000 + b"}"),
        ("board.toml", b"x = " + b"[" * 200_000),
        ("board.toml", b"x = " + b"{a=" * 200_000),
        ("board.toml", b"\xff"),
        ("board.toml", b"#" * (2 << 20)),
        ("board.toml", b"a." * 100_000 + b"b = 1"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_scenario(tmp_path / name)
    assert is_printable(str(caught.value)) and len(str(caught.value)) < 1000
    with pytest.raises(UserError, match="cannot be read"):
        read_scenario(tmp_path)
