"""Power modes: listed, set, and always restored."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from device_agent.board import cpufreq
from device_agent.errors import AgentError
from device_agent.power.modes import PowerModes
from device_agent.serve.client_modes import ClientPowerModes
from device_agent.serve.reservation import Client, DeviceReservation
from tests.unit.device_agent.power.mode_trees import STEPS, contents, make_cpufreq, make_nvpmodel


@pytest.fixture
def board(tmp_path):
    root = tmp_path / "root"
    make_cpufreq(root)
    make_nvpmodel(root)
    return root


def modes_of(root: Path, run: str = "run", elevate=()) -> PowerModes:
    folder = root.parent / run
    folder.mkdir(exist_ok=True)
    return PowerModes(str(root), str(folder), str(root.parent / "modes.lock"), elevate)


def named(modes: PowerModes, kind: str) -> dict[str, bool]:
    """Whether it is the current one, by name of a mode."""
    return {one["name"]: one["current"] for one in modes.list()["modes"] if one["kind"] == kind}


def test_every_kind_is_in_one_of_its_modes(board):
    modes = modes_of(board)
    assert named(modes, "nvpmodel") == {"15W": True, "7W": False, "MAXN_SUPER": False, "GPU_HALF": False}
    governors = named(modes, "governor")
    assert governors["schedutil"] and sum(governors.values()) == 1
    assert "userspace" not in governors  # measures whatever somebody wrote elsewhere
    assert named(modes, "max_frequency") == {"cpu-100%": True, "cpu-75%": False, "cpu-50%": False}
    assert all(one["settable"] for one in modes.list()["modes"])


def test_a_machine_without_any_lists_none(tmp_path):
    (tmp_path / "root").mkdir()
    modes = modes_of(tmp_path / "root")
    assert modes.list() == {"modes": [], "changed": False, "jetson_clocks": None}
    with pytest.raises(AgentError, match="no power mode performance"):
        modes.set("performance")


@pytest.mark.parametrize("name", ["7W", "MAXN_SUPER", "performance", "powersave", "cpu-50%", "cpu-75%"])
def test_a_mode_is_set_and_undone(board, name):
    before = contents(board)
    modes = modes_of(board)
    modes.set(name)
    assert contents(board) != before
    assert [one["name"] for one in modes.list()["modes"] if one["current"] and one["name"] == name]
    modes.restore()
    assert contents(board) == before and not modes.changed
    modes.restore()


def test_shares_are_frequencies_that_the_driver_has(board):
    modes_of(board).set("cpu-75%")
    values = {value for path, value in contents(board).items() if path.endswith("max_freq")}
    assert values == {str(STEPS[1])}  # the nearest to 75% of 1510400
    for policy in (board / cpufreq.FOLDER).iterdir():
        (policy / "scaling_available_frequencies").unlink()
    assert named(modes_of(board, "again"), "max_frequency")["cpu-78.8%"]


def test_a_driver_without_a_table_takes_any_frequency(board):
    for policy in (board / cpufreq.FOLDER).iterdir():
        (policy / "scaling_available_frequencies").unlink()
    modes = modes_of(board)
    modes.set("cpu-75%")
    values = {value for path, value in contents(board).items() if path.endswith("max_freq")}
    assert values == {str(1510400 * 75 // 100)}
    assert named(modes, "max_frequency")["cpu-75%"]


def test_policies_that_differ_are_restored_each_as_it_was(board):
    odd = board / cpufreq.FOLDER / "policy4"
    (odd / "scaling_governor").write_text("powersave\n")
    (odd / "scaling_max_freq").write_text("1190400\n")
    before = contents(board)
    modes = modes_of(board)
    assert named(modes, "governor")["powersave+schedutil"]
    modes.set("performance")
    modes.set("cpu-50%")
    modes.set("powersave+schedutil")  # by the name under which it was found
    assert {p: v for p, v in contents(board).items() if "governor" in p} == {
        p: v for p, v in before.items() if "governor" in p
    }
    modes.restore()
    assert contents(board) == before


def test_nothing_is_left_to_restore_when_every_kind_is_back(board):
    before = contents(board)
    modes = modes_of(board)
    modes.set("performance")
    modes.set("cpu-50%")
    modes.set("schedutil")
    assert modes.changed
    modes.set("cpu-100%")
    assert not modes.changed and contents(board) == before


def test_a_mode_of_the_board_and_a_governor_are_undone_together(board):
    (board / cpufreq.FOLDER / "policy0/scaling_max_freq").write_text("1420800\n")
    before = contents(board)
    modes = modes_of(board)
    modes.set("performance")
    modes.set("7W")  # changes the limits too
    modes.set("MAXN_SUPER")
    modes.restore()
    assert contents(board) == before


def test_limits_are_written_in_the_order_that_the_kernel_takes(board, monkeypatch):
    """The kernel refuses a limit beyond the other one (drivers/cpufreq/cpufreq.c)."""
    real = cpufreq.CpuFrequency._write

    def write(self, policy, attribute, value):
        other = {"scaling_max_freq": "scaling_min_freq", "scaling_min_freq": "scaling_max_freq"}
        if attribute in other:
            limit = int(self._read(policy, other[attribute]))
            if (int(value) < limit) if attribute == "scaling_max_freq" else (int(value) > limit):
                raise AgentError("modes", f"{attribute}: Invalid argument")
        real(self, policy, attribute, value)

    monkeypatch.setattr(cpufreq.CpuFrequency, "_write", write)
    for policy in (board / cpufreq.FOLDER).iterdir():  # as jetson_clocks leaves it
        (policy / "scaling_min_freq").write_text(f"{STEPS[-1]}\n")
    before = contents(board)
    modes = modes_of(board)
    assert modes.list()["jetson_clocks"] is True
    modes.set("cpu-50%")
    assert modes.list()["jetson_clocks"] is True
    modes.restore()
    assert contents(board) == before


def test_a_mode_that_needs_a_restart_is_refused_with_the_way(board):
    before = contents(board)
    modes = modes_of(board)
    with pytest.raises(AgentError, match=r"after a restart only.*sudo nvpmodel -m 3"):
        modes.set("GPU_HALF")
    modes.restore()
    assert contents(board) == before


def test_the_journal_is_there_before_anything_changes(board, monkeypatch):
    """A crash in between leaves something to restore, and never a change without it."""
    before = contents(board)
    seen = []
    real = cpufreq.CpuFrequency._write

    def write(self, policy, attribute, value):
        journal = json.loads((board.parent / "run/modes.json").read_text())
        seen.append(journal["policies"]["policy4"]["scaling_governor"])
        if policy == "policy4":
            raise KeyboardInterrupt  # the process is gone
        real(self, policy, attribute, value)

    monkeypatch.setattr(cpufreq.CpuFrequency, "_write", write)
    modes = modes_of(board)
    with pytest.raises(KeyboardInterrupt):
        modes.set("performance")
    assert seen == ["schedutil", "schedutil"] and contents(board) != before
    modes._held.close()  # as the kernel does
    monkeypatch.setattr(cpufreq.CpuFrequency, "_write", real)
    left = modes_of(board)
    left.restore()
    assert contents(board) == before and not left.changed


def test_a_journal_of_another_boot_restores_what_lasts_over_it(board):
    modes = modes_of(board)
    modes.set("7W")
    modes.set("performance")
    modes._held.close()
    (board / "proc/sys/kernel/random/boot_id").write_text("99999999-2222-3333-4444-555555555555\n")
    for policy in (board / cpufreq.FOLDER).iterdir():  # the kernel's and the distribution's own
        (policy / "scaling_governor").write_text("ondemand\n")
    modes_of(board).restore()
    assert (board / "var/lib/nvpmodel/status").read_text() == "pmode:0000\n"
    assert {v for p, v in contents(board).items() if "governor" in p} == {"ondemand"}


def test_what_cannot_be_restored_stays_in_the_journal(board, monkeypatch):
    modes = modes_of(board)
    before = contents(board)
    modes.set("performance")
    real = cpufreq.CpuFrequency._write

    def refuse(self, policy, attribute, value):
        if policy == "policy0":
            raise AgentError("modes", "scaling_governor does not take it")
        real(self, policy, attribute, value)

    monkeypatch.setattr(cpufreq.CpuFrequency, "_write", refuse)
    with pytest.raises(AgentError, match="power modes are not restored"):
        modes.restore()
    assert modes.changed
    assert (board / cpufreq.FOLDER / "policy4/scaling_governor").read_text().strip() == "schedutil"
    monkeypatch.setattr(cpufreq.CpuFrequency, "_write", real)
    modes.restore()
    assert contents(board) == before


def test_two_agents_do_not_change_modes_at_once(board):
    one, other = modes_of(board, "one"), modes_of(board, "other")
    one.set("performance")
    with pytest.raises(AgentError, match="another agent on this device"):
        other.set("cpu-50%")
    one.restore()
    other.set("cpu-50%")
    other.restore()


def test_a_missing_permission_says_what_to_type(board, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    listed = [one for one in modes_of(board).list()["modes"] if one["kind"] == "governor"]
    assert not any(one["settable"] for one in listed)
    assert all(re.search(r"sudo chown \$USER .*policy\*/scaling_\{governor", one["reason"]) for one in listed)
    with pytest.raises(AgentError, match="on the device type: sudo chown"):
        modes_of(board).set("performance")


def test_nvpmodel_without_root_says_what_to_type(board, tmp_path):
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(0o755)
    modes = modes_of(board, elevate=[str(sudo), "-n"])
    entry = next(one for one in modes.list()["modes"] if one["name"] == "7W")
    assert not entry["settable"] and "NOPASSWD: /usr/sbin/nvpmodel" in entry["reason"]
    with pytest.raises(AgentError, match="sudoers"):
        modes.set("7W")
    assert not (board / "asked").exists()


def test_nvpmodel_runs_through_sudo_where_that_is_allowed(board, tmp_path):
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\nshift\n[ "$1" = -l ] && exit 0\nexec "$@"\n')
    sudo.chmod(0o755)
    modes = modes_of(board, elevate=[str(sudo), "-n"])
    modes.set("7W")
    assert (board / "asked").read_text() == "1\n"
    modes.restore()
    assert (board / "asked").read_text() == "1\n0\n"


def test_who_has_modes_set_has_the_device(board):
    modes, reservation, notes = modes_of(board), DeviceReservation(), []
    client_modes = ClientPowerModes(modes, reservation, lambda: None, notes.append)
    ada, bob = Client(1, "ada@attic"), Client(2, "bob@bench")
    client_modes.set(ada, "performance")
    assert reservation.holder().client == ada
    client_modes.set(ada, "schedutil")
    assert reservation.holder() is None
    with pytest.raises(AgentError, match="no power mode nothing"):
        client_modes.set(bob, "nothing")
    assert reservation.holder() is None
    client_modes.set(bob, "powersave", session="s1")
    client_modes.session_ended("s2")
    assert modes.changed
    client_modes.session_ended("s1")
    assert not modes.changed and reservation.holder() is None and notes == []


def test_modes_that_could_not_be_restored_are_tried_again(board, monkeypatch):
    before = contents(board)
    modes, reservation, notes = modes_of(board), DeviceReservation(), []
    client_modes = ClientPowerModes(modes, reservation, lambda: None, notes.append)
    client_modes.set(Client(1, "ada@attic"), "performance")
    with monkeypatch.context() as broken:
        broken.setattr(
            cpufreq.CpuFrequency, "put", lambda *_: (_ for _ in ()).throw(AgentError("modes", "no"))
        )
        client_modes.client_ended(Client(1, "ada@attic"))
    assert notes == ["power modes are not restored: no; the next start tries again"]
    assert client_modes.unrestored and reservation.holder() is None
    client_modes.set(Client(2, "bob@bench"), "cpu-50%")
    client_modes.restore(Client(2, "bob@bench"))
    assert contents(board) == before


def test_a_unit_that_keeps_the_agent_from_sudo_is_named(board, tmp_path):
    sudo = tmp_path / "sudo"
    message = 'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.'
    sudo.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
    sudo.chmod(0o755)
    with pytest.raises(AgentError, match=r"keeps it from sudo.*install-agent NAME --power-modes"):
        modes_of(board, elevate=[str(sudo), "-n"]).set("7W")
