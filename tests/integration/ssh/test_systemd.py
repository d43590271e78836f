"""The agent as a unit of a user's systemd, the real one: started, restarted, replaced, removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.devices import DeviceEntry
from host.devices.install import remove_from_board
from host.payload import agent_archive
from host.transport import connect
from host.transport.installing import install_agent
from host.transport.ssh import ssh_connection_to
from tests.integration.agent.service import wait_for
from tests.integration.ssh.systemd import SystemdBoard, possible
from tests.integration.ssh.versions import other_version

pytestmark = pytest.mark.skipif(not possible(), reason="needs root and control groups of version 2")
_UNIT = "edgetlm-agent.service"


@pytest.fixture
def server(tmp_path: Path, client_home: Path) -> Iterator[SystemdBoard]:
    board = SystemdBoard(tmp_path / "board", client_home)
    try:
        board.start()
        yield board
    finally:
        board.stop()


def _unit(entry: DeviceEntry) -> dict[str, str]:
    """What systemd says of the agent's unit."""
    with ssh_connection_to(entry) as link:
        command = f"systemctl --user show -p MainPID,ActiveState,UnitFileState,NRestarts,TasksMax {_UNIT}"
        lines = link.run(command).stdout.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def _running(board: SystemdBoard) -> dict[str, str]:
    record = json.loads((board.root / "device" / "agent.json").read_text())
    return {name: str(value) for name, value in record.items()}


def test_systemd_starts_the_agent_and_keeps_it(entry, board):
    unit = install_agent(entry).unit
    assert (unit["available"], unit["enabled"]) == (True, True), unit
    first = _unit(entry)
    # It outlives the connection that started it, with the limits of its unit.
    assert (first["ActiveState"], first["UnitFileState"], first["TasksMax"]) == ("active", "enabled", "512")
    assert first["MainPID"] == _running(board)["pid"]
    with connect("bench") as device:
        assert device.describe().cores >= 1

    with ssh_connection_to(entry) as link:
        link.run(f"kill -9 {first['MainPID']}")
    assert wait_for(lambda: _unit(entry)["NRestarts"] == "1" and _unit(entry)["ActiveState"] == "active")
    with connect("bench") as device:
        assert device.describe().cores >= 1
    assert _unit(entry)["MainPID"] == _running(board)["pid"] != first["MainPID"]


def test_systemd_starts_the_version_that_replaces_another(entry, board, monkeypatch):
    with monkeypatch.context() as patch:
        other = other_version(board.folder)
        for module in ("host.devices.install", "host.transport.ssh"):
            patch.setattr(f"{module}.agent_archive", lambda: other)
        install_agent(entry)
    before = _running(board)
    assert other.sha256 in before["code"]
    with connect("bench") as device:
        device.describe()
    after = _running(board)
    assert agent_archive().sha256 in after["code"]
    assert _unit(entry)["MainPID"] == after["pid"] != before["pid"]


def test_nothing_of_the_unit_is_left_when_the_agent_is_removed(entry, board):
    install_agent(entry)
    pid = _running(board)["pid"]
    with ssh_connection_to(entry) as link:
        removed = remove_from_board(link, purge=True)
        assert link.run(f"kill -0 {pid}").code != 0
    assert str(board.root) in removed
    assert [path for path in removed if path.endswith(_UNIT)]
    state = _unit(entry)
    assert (state["ActiveState"], state["UnitFileState"], state["MainPID"]) == ("inactive", "", "0")
    assert not list((board.home / ".config").rglob(f"*{_UNIT}"))
