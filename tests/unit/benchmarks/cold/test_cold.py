"""Cold deployments as a benchmark: what the command finds of the user, parts of memory, failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cold.__main__ import by_part, deployed
from host.errors import UserError

# A command that stands in for `sdk deploy`: it writes what it found, and holds memory until that is seen.
_COMMAND = """
import json, os, subprocess, sys, time
from pathlib import Path
assert sys.argv[1] == "deploy" and sys.argv[3] == "--json", sys.argv
held = b"x" * 60_000_000
child = subprocess.Popen([sys.executable, "-c", "x = b'x' * 40_000_000; input()", "host.sandbox.child"],
                         stdin=subprocess.PIPE)
time.sleep(0.6)
child.communicate(b"\\n")
names = ("EDGETLM_STORE", "PYTHONDONTWRITEBYTECODE", "HOME", "XDG_CACHE_HOME")
Path(sys.argv[4]).write_text(json.dumps({name: os.environ.get(name) for name in names}))
sys.exit(int(Path(sys.argv[2]).read_text()))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sdk" / "cli").mkdir(parents=True)
    for name in ("__init__.py", "cli/__init__.py"):
        (tmp_path / "sdk" / name).write_text("")
    (tmp_path / "sdk" / "cli" / "__main__.py").write_text(_COMMAND)
    return tmp_path


def _model(root: Path, code: int) -> Path:
    path = root / "model"
    path.write_text(str(code))
    return path


def test_a_cold_deployment_finds_nothing_of_the_user_and_its_processes_are_watched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EDGETLM_STORE", "PYTHONDONTWRITEBYTECODE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/somewhere")
    made = deployed(_model(root, 0), root, watched=True)
    assert made.figures["EDGETLM_STORE"] is None and made.figures["PYTHONDONTWRITEBYTECODE"] is None
    cache = Path(made.figures["XDG_CACHE_HOME"])
    assert cache.parent == Path(made.figures["HOME"]).parent and not cache.parent.exists()
    assert made.parts is not None and list(made.parts) == ["command", "worker"]
    assert made.parts["command"] > 60_000_000 and made.parts["worker"] > 40_000_000
    assert made.peak_bytes == sum(made.parts.values())
    assert made.wall_s >= 0.6 and made.cpu_s > 0


def test_a_deployment_that_failed_is_no_figure(root: Path) -> None:
    with pytest.raises(UserError, match=r"deploy .* ended with code 3: nothing was said"):
        deployed(_model(root, 3), root)


def test_processes_are_told_apart_by_the_module_that_they_run() -> None:
    python = "/usr/bin/python"
    found = by_part(
        [
            ((python, "-m", "sdk.cli", "deploy"), 5),
            ((python, "-m", "device_agent", "serve"), 3),
            ((python, "-m", "device_agent.execute.executor"), 20),
            ((python, "-m", "device_agent.execute.executor"), 10),
            (("ld.lld",), 1),
        ]
    )
    assert found == {"sessions": 30, "command": 5, "agent": 3, "other": 1}
    assert list(found) == ["sessions", "command", "agent", "other"]
