"""The processor seconds of light commands: those of an answer, and none of a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.light_commands import seconds_of
from benchmarks.result_file import ROOT
from host.errors import UserError


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    assert seconds_of(["nonsense"], tmp_path, ROOT) > 0.0


def test_the_time_of_a_crash_is_no_figure(tmp_path: Path) -> None:
    (tmp_path / "sdk" / "cli").mkdir(parents=True)
    for name in ("__init__.py", "cli/__init__.py"):
        (tmp_path / "sdk" / name).write_text("")
    (tmp_path / "sdk" / "cli" / "__main__.py").write_text("raise SystemExit(1)")
    with pytest.raises(UserError, match="sdk targets ended with code 1"):
        seconds_of(["targets"], tmp_path, tmp_path)
