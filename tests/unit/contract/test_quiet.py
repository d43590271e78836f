"""Reporting is off before a library is imported, in one place."""

from __future__ import annotations

import ast
import os
import sys
import types
from pathlib import Path

import pytest

import host
from device_agent.contract import quiet

ROOT = Path(host.__file__).parents[1]
REPORTING = {"onnxruntime", "openvino", "openvino_telemetry"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A package that notes what it finds when it is imported, beside OpenVINO's reporter."""
    for name in quiet.VARIABLES:
        monkeypatch.setenv(name, "0")
    (tmp_path / "openvino_telemetry.py").write_text("")
    (tmp_path / "reporting_engine.py").write_text(
        "import os\n"
        "variable = os.environ.get('ORT_DISABLE_TELEMETRY')\n"
        "stopped = []\n"
        "try:\n"
        "    import openvino_telemetry\n"
        "except ImportError:\n"
        "    openvino_telemetry = None\n"
        "def disable_telemetry_events():\n"
        "    stopped.append(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("reporting_engine", "openvino_telemetry"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return types.SimpleNamespace(name="reporting_engine", folder=tmp_path)


def test_everything_is_off_before_the_first_line_of_a_package_runs(package: types.SimpleNamespace) -> None:
    module = quiet.import_quietly(package.name)
    assert module.variable == "1"
    assert module.openvino_telemetry is None
    assert module.stopped == [1]
    assert {name: os.environ[name] for name in quiet.VARIABLES} == dict(quiet.VARIABLES)


def test_an_application_can_import_the_reporter_itself(package: types.SimpleNamespace) -> None:
    quiet.import_quietly(package.name)
    assert "openvino_telemetry" not in sys.modules
    import openvino_telemetry

    module = quiet.import_quietly(package.name)
    assert sys.modules["openvino_telemetry"] is openvino_telemetry
    assert module.stopped == [1, 1]


def test_a_package_that_fails_leaves_the_reporter_importable(package: types.SimpleNamespace) -> None:
    (package.folder / "reporting_engine.py").write_text("raise ImportError('broken')")
    with pytest.raises(ImportError, match="broken"):
        quiet.import_quietly(package.name)
    assert "openvino_telemetry" not in sys.modules


@pytest.mark.parametrize("folder", ["sdk", "research", "host", "targets", "device_agent"])
def test_nothing_else_imports_a_library_that_reports(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files or folder == "targets"
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found = REPORTING & {name.partition(".")[0] for name in names}
            assert not found, f"{file}:{node.lineno} imports {found} without device_agent.contract.quiet"
