"""The longest files of tests are started first."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scheduling.longest_first import LONGEST, longest_first

ROOT = Path(__file__).parents[2]


@dataclass
class Named:
    nodeid: str


def test_long_files_come_first_and_the_rest_stays_in_order() -> None:
    long, longer = LONGEST[1], LONGEST[0]
    before = ["tests/b.py::one", f"{long}::two", f"{long}::one", "tests/a.py::one", f"{longer}::one[a::b]"]
    after = [item.nodeid for item in longest_first([Named(name) for name in before])]
    assert after == [
        f"{longer}::one[a::b]",
        f"{long}::two",
        f"{long}::one",
        "tests/b.py::one",
        "tests/a.py::one",
    ]


@pytest.mark.parametrize("file", LONGEST)
def test_every_long_file_has_tests(file: str) -> None:
    assert "def test_" in (ROOT / file).read_text()


def test_files_are_handed_out_in_that_order(tmp_path: Path) -> None:
    """The first files that the script's options start are the long ones, though others hold more tests."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_many.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    for file in LONGEST[:2]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("def test_alone(): pass\n")
    lines = "from tests.scheduling.longest_first import longest_first\n\n"
    lines += "def pytest_collection_modifyitems(items):\n    items[:] = longest_first(items)\n"
    (tmp_path / "plugin_of_the_test.py").write_text(lines)
    [options] = [line for line in (ROOT / "scripts" / "test").read_text().splitlines() if "-m pytest" in line]
    words = [word for word in options.split() if word.startswith("--")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "1",
        "--dist",
        "loadfile",
        "-v",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-p", "plugin_of_the_test", "--import-mode=importlib", "--rootdir", str(tmp_path)]
    command += [word for word in words if word != "--dist"]
    done = subprocess.run(
        [*command, "tests"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line.split()[-1] for line in done.stdout.splitlines() if " PASSED " in line]
    assert [name.split("::")[0] for name in ran] == [*LONGEST[:2], "tests/test_many.py", "tests/test_many.py"]
