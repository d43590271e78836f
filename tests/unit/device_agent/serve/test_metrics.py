"""Figures of a board for Prometheus, and the dashboard that shows them and those of all boards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from device_agent.contract.metrics import Metric, exposition
from device_agent.errors import AgentError
from device_agent.serve import control
from device_agent.serve.metrics import BoardMetrics
from device_agent.store.agent_folder import AgentFolder
from host.leases.activity import metrics as fleet_metrics
from tests.unit.contract.test_metrics import parsed
from tests.unit.documentation import ROOT

_NAME = re.compile(r"\bedgetlm_[a-z0-9_]+\b")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    files = {
        "proc/loadavg": "0.52 0.40 0.30 1/200 99\n",
        "proc/sys/kernel/osrelease": "6.12.34\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "48312\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "1500000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def figures(system: Path) -> list[Metric]:
    return BoardMetrics(AgentFolder(str(system / "home")), str(system)).collect()


def test_they_are_what_the_kernel_shows(system: Path) -> None:
    text = exposition(figures(system))
    found = parsed(text)
    assert found["edgetlm_board_temperature_celsius"] == [48.312]
    assert 'zone="thermal_zone0.cpu-thermal"' in text and 'kernel="6.12.34"' in text
    assert found["edgetlm_board_clock_hertz"] == [1.5e9] and found["edgetlm_board_load1"] == [0.52]
    # No agent runs there, and none is started.
    assert found["edgetlm_agent_up"] == [0.0] and "edgetlm_agent_device_held" not in found
    assert not (system / "home").exists()


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An agent that runs, by what is told of it."""
    answer: dict[str, Any] = {"holder": {"client": "anna@desk"}, "waiting": 2}
    monkeypatch.setattr(AgentFolder, "running", lambda folder: {"pid": os.getpid()})
    monkeypatch.setattr(control, "ask", lambda record, command: answer)
    return answer


def test_the_agent_is_asked_who_has_the_device(
    system: Path, running: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = parsed(exposition(figures(system)))
    assert found["edgetlm_agent_up"] == found["edgetlm_agent_device_held"] == [1.0]
    assert found["edgetlm_agent_hosts_waiting"] == [2.0]
    assert found["edgetlm_agent_resident_memory_bytes"][0] > 1e6
    running.update(holder=None, waiting=0)
    assert parsed(exposition(figures(system)))["edgetlm_agent_device_held"] == [0.0]

    def gone(record: object, command: str) -> dict[str, Any]:
        raise AgentError("internal", "the running agent does not answer")

    monkeypatch.setattr(control, "ask", gone)
    found = parsed(exposition(figures(system)))
    assert found["edgetlm_agent_up"] == [1.0] and "edgetlm_agent_device_held" not in found


def test_the_dashboard_asks_for_figures_that_there_are(system: Path, running: dict[str, Any]) -> None:
    board = json.loads((ROOT / "integrations/grafana/boards.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    asked = {name for query in queries for name in _NAME.findall(query)}
    there = {one.name for one in (*figures(system), *fleet_metrics(()))}
    assert asked and asked <= there, asked - there
    # What is not shown is named here, so that a new figure is not forgotten.
    assert there - asked == {"edgetlm_board_info", "edgetlm_board_fan_rpm"}
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_the_command_serves_on_loopback_until_it_is_ended(system: Path) -> None:
    command = [sys.executable, "-m", "device_agent", "metrics", "--port", "0", "--home", str(system / "home")]
    command += ["--system-root", str(system)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:") and address.endswith("/metrics")
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert parsed(answer.read().decode())["edgetlm_agent_up"] == [0.0]
        finally:
            process.terminate()


@pytest.mark.parametrize("words", [["--listen", "nowhere"], ["--port", "70000"]])
def test_what_nothing_can_listen_on_is_one_line(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "device_agent", "metrics", "--home", str(tmp_path), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("device-agent: ")
