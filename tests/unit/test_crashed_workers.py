"""A test that ends its process does not stop the other tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = """
import os

import pytest

@pytest.mark.parametrize("number", range(4))
def test_numbers(number):
    if number == {crashes}:
        os.abort()
"""


@pytest.mark.parametrize(("crashes", "passed"), [({"b": 1}, 11), ({"a": 0, "c": 3}, 10)], ids=["one", "ends"])
def test_the_tests_behind_a_crash_still_run(tmp_path: Path, crashes: dict[str, int], passed: int) -> None:
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(FILE.format(crashes=crashes.get(name, -1)))
    options = [
        "-n",
        "2",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "-q",
        "-p",
        "tests.scheduling.crashed_workers",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert f"{len(crashes)} failed, {passed} passed" in done.stdout, done.stdout[-3000:]
    for name, number in crashes.items():
        assert f"FAILED test_{name}.py::test_numbers[{number}]" in done.stdout
