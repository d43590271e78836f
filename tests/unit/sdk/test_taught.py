"""`sdk records taught`: what the records of a board have taught."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdk.cli.main import main
from tests.unit.compile.test_first_programs import narrow_s, taught


def test_what_convinces_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.sqlite"
    taught(path, narrow_s)
    assert main(["records", "taught", "--records", str(path), "-o", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["board"], row["threads"], row["rule"]) == ("x86_64", 1, "tiled")
    assert (row["programs"], row["models"], row["tasks"], row["used"]) == (96, 4, 8, True)
    assert 1.0 < row["low"] < row["speed"] < row["high"]
    assert main(["records", "taught", "--records", str(path)]) == 0
    [_, line] = [line for line in capsys.readouterr().out.splitlines() if "tiled" in line or "rule" in line]
    assert line.split()[:5] == ["x86_64", "1", "tiled", "96", "4"] and line.split()[-1] == "yes"


def test_records_that_say_nothing_of_their_estimate_teach_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.sqlite"
    taught(path, narrow_s, count=0)
    assert main(["records", "taught", "--records", str(path)]) == 0
    assert "the records teach nothing yet" in capsys.readouterr().out
