"""The units of `integrations/systemd`: systemd takes them, and they run a command that there is."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

from tests.unit.documentation import ROOT, parse

FOLDER = ROOT / "integrations/systemd"


def read(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((FOLDER / name).read_text())
    return unit


def test_the_service_watches_one_device_once() -> None:
    service = read("edgetlm-watch@.service")["Service"]
    assert service["Type"] == "oneshot"
    environment, line = service["ExecStart"].split(" ", 1)
    assert environment == "/usr/bin/env"
    parse(line.replace("%i", "local"))
    assert line.startswith("sdk watch %i --once")
    # An exit code of 3 has to show as a unit that failed.
    assert "SuccessExitStatus" not in service


def test_the_timer_starts_the_service_of_its_name_again_and_again() -> None:
    timer = read("edgetlm-watch@.timer")
    assert timer["Timer"]["OnUnitInactiveSec"] == "6h" and "OnBootSec" in timer["Timer"]
    assert "Unit" not in timer["Timer"], "it is that of the same name"
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_systemd_takes_them(tmp_path: Path) -> None:
    """Where systemd is; its options are checked by it alone."""
    program = shutil.which("systemd-analyze")
    names = [path.name for path in FOLDER.iterdir()]
    assert sorted(names) == ["edgetlm-watch@.service", "edgetlm-watch@.timer"]
    if program is None:
        return
    made = []
    for name in names:
        made.append(tmp_path / name.replace("@", "@local"))
        shutil.copy(FOLDER / name, made[-1])
    command = [program, "verify", "--man=no", "--recursive-errors=no", *map(str, made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    ours = [line for line in done.stderr.splitlines() if "edgetlm-watch" in line]
    assert ours == [] and done.returncode == 0, done.stderr
