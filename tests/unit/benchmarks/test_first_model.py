"""Steps to the first model: timed in a process of their own, none that failed, from the checkout's wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import first_model
from benchmarks.first_model import Steps, built_wheel, sources
from benchmarks.result_file import ROOT
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


def test_the_copy_for_the_build_has_every_package_that_the_wheel_names() -> None:
    """And nothing that Git ignores; test_packaging builds it."""
    copied = sources(ROOT)
    for name in ("benchmarks/e2e/__init__.py", "host/tlm/weights/weights.safetensors", "NOTICE", "README.md"):
        assert name in copied
    assert not [name for name in copied if "__pycache__" in name or name.startswith(("tests/", "docs/"))]


def test_a_build_that_fails_shows_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "checkout"
    root.mkdir()
    text = (ROOT / "pyproject.toml").read_text().replace('"benchmarks.e2e*"', '"absent*"')
    (root / "pyproject.toml").write_text(text.replace('["benchmarks.result_file"]', '["absent.module"]'))
    (root / "README.md").write_text("Nothing.\n")
    for name in ("LICENSE", "NOTICE"):
        (root / name).write_text("Nothing.\n")
    subprocess.run(["git", "init", "--quiet", "."], cwd=root, check=True)
    monkeypatch.setattr(first_model, "ROOT", root)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=r"(?s)cannot be built:.*'absent' does not exist"):
        built_wheel(tmp_path / "out")
