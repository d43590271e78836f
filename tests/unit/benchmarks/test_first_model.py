"""Steps to the first model: timed in a process of their own, and none that failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.first_model import Steps
from host.errors import UserError


def test_a_step_is_timed_and_finds_nothing_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("EDGETLM_STORE", "/somewhere")
    steps = Steps(tmp_path)
    code = (
        "import os, time; end = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass\n"
        "found = [name for name in os.environ if name.startswith(('PYTHON', 'EDGETLM'))]\n"
        f"assert not found and os.environ['XDG_DATA_HOME'].startswith({str(tmp_path)!r}), found"
    )
    steps.run("compute", [sys.executable, "-c", code])
    [row] = steps.rows
    assert row["step"] == "compute" and row["cpu_s"] >= 0.3 and row["wall_s"] >= 0.3


def test_a_step_that_failed_is_no_figure(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    with pytest.raises(UserError, match="break ended with code 3: no such thing"):
        steps.run("break", [sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"])
    assert steps.rows == []
