"""Parts of the agent as a service: tickets, the line of hosts, the log, payloads, units of systemd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from device_agent.errors import AgentError
from device_agent.serve import control, tickets
from device_agent.serve.log import Log
from device_agent.serve.payloads import Payloads
from device_agent.serve.reservation import Client, DeviceReservation
from device_agent.serve.systemd_unit import SystemdUnit
from device_agent.serve.tickets import TicketStore
from device_agent.store.agent_folder import AgentFolder, RunFolder
from device_agent.store.private_files import try_lock, write_private

ADA, BOB = Client(1, "ada@attic"), Client(2, "bob@bench")


# -- tickets


def test_a_ticket_is_used_up_by_whoever_comes_first(tmp_path):
    store = TicketStore(str(tmp_path / "tickets"))
    token = store.issue()
    store.admit(token)
    with pytest.raises(AgentError) as caught:
        store.admit(token)
    assert caught.value.kind == "denied"
    assert list((tmp_path / "tickets").iterdir()) == []


def test_a_ticket_expires_by_the_monotonic_clock(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: pytest.fail("the time of day was asked"), raising=False)
    store = TicketStore(str(tmp_path / "tickets"))
    in_time, late, forgotten = store.issue(), store.issue(), store.issue()
    now[0] += tickets.LIFETIME_S - 1
    store.admit(in_time)
    now[0] += 2
    with pytest.raises(AgentError, match="expired"):
        store.admit(late)
    store.sweep()
    assert list((tmp_path / "tickets").iterdir()) == [] and forgotten


def test_a_ticket_is_kept_as_a_hash(tmp_path):
    token = TicketStore(str(tmp_path / "tickets")).issue()
    (file,) = (tmp_path / "tickets").iterdir()
    assert token.split(".")[1] not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


# -- the line of hosts


def test_the_device_is_its_holders_until_the_last_use_ends():
    reservation = DeviceReservation()
    reservation.acquire(ADA)
    reservation.acquire(ADA)
    reservation.release(ADA)
    with pytest.raises(AgentError, match="in use by ada@attic"):
        reservation.acquire(BOB)
    reservation.release(BOB)  # what is not his he cannot give back
    reservation.release(ADA)
    reservation.acquire(BOB)
    assert reservation.holder().client == BOB


def test_who_waits_gets_the_device_when_its_holder_goes():
    reservation = DeviceReservation()
    reservation.acquire(ADA)
    got = threading.Event()
    thread = threading.Thread(target=lambda: (reservation.acquire(BOB, 60.0), got.set()))
    thread.start()
    while reservation.describe()["waiting"] == 0:
        time.sleep(0.01)
    assert not got.is_set()
    reservation.release_all(ADA)
    thread.join(60)
    assert got.is_set() and reservation.holder().client == BOB


def test_who_leaves_while_waiting_gives_up_the_place():
    reservation = DeviceReservation()
    reservation.acquire(ADA)
    with pytest.raises(AgentError, match="ada@attic"):
        reservation.acquire(BOB, 60.0, present=lambda: False)
    assert reservation.describe()["waiting"] == 0


# -- folders and locks


def test_folders_of_killed_agents_go_and_those_of_living_ones_stay(tmp_path):
    living = tmp_path / "run/1"
    for name in ("1", "2", "kept"):
        (tmp_path / "run" / name).mkdir(parents=True)
    with try_lock(str(living / "lock")) as free:
        assert free
        folder = RunFolder(str(tmp_path), recover=lambda left: not left.endswith("kept"))
        names = sorted(entry.name for entry in (tmp_path / "run").iterdir())
        assert names == sorted(["1", "kept", str(os.getpid())])
    folder.remove()
    folder.remove()


def test_an_agent_runs_as_long_as_its_lock_is_held(tmp_path):
    home = AgentFolder(str(tmp_path / "home"))
    assert home.running() is None
    home.make()
    write_private(home.record, {"pid": os.getpid()})
    assert home.running() is None  # whatever the file says
    with try_lock(home.lock):
        assert home.running() == {"pid": os.getpid()}
    assert home.running() is None


# -- the log


def test_the_log_begins_anew_and_keeps_the_older_one(tmp_path):
    path = tmp_path / "agent.log"
    program = f"""
from device_agent.serve.log import Log
log = Log({str(path)!r}, limit_bytes=1000)
log.begin()
for number in range(100):
    log.write("message %d" % number)
print("whatever else is printed")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    lines = (path.with_suffix(".log.1").read_text() + path.read_text()).splitlines()
    assert path.stat().st_size <= 1100 and path.with_suffix(".log.1").stat().st_size <= 1000
    assert lines[-2].endswith("message 99") and lines[-1] == "whatever else is printed"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_message_is_one_line(capfd):
    Log(None).write("a\nb")
    assert capfd.readouterr().err.endswith(" a b\n")
    Log(None, quiet=True).write("nothing")
    assert capfd.readouterr().err == ""


# -- payloads


@pytest.fixture
def home(tmp_path):
    home = AgentFolder(str(tmp_path / "home"))
    for name in ("aa", "bb"):
        (tmp_path / "home/payloads" / name).mkdir(parents=True)
    entries = {
        "tvm": {"kind": "native", "path": "payloads/aa"},
        "onnxruntime": {"kind": "python", "path": "payloads/bb"},
        "litert": {"kind": "python", "path": "payloads/bb", "python": "/opt/python"},
        "torch": {"kind": "native", "path": "payloads/aa", "launcher": ["emulator", "-x"]},
        "openvino": {"kind": "python", "path": "payloads/gone"},
    }
    Path(home.payloads).write_text(json.dumps(entries))
    return home


def test_payloads_say_how_an_engine_is_started(home):
    payloads = Payloads(home, "python3")
    native = f"{home.root}/payloads/aa/edgetlm-executor"
    module = ["-m", "device_agent.execute.executor"]
    assert payloads.command("tvm") == ([native], "")
    assert payloads.command("onnxruntime") == (["python3", *module], f"{home.root}/payloads/bb")
    assert payloads.command("litert") == (["/opt/python", *module], f"{home.root}/payloads/bb")
    assert payloads.command("torch") == (["emulator", "-x", native], "")
    assert payloads.command("tvm", "/own/python") == (["/own/python", *module], "")


def test_engines_without_a_payload_are_named(home):
    payloads = Payloads(home, "python3")
    with pytest.raises(AgentError, match=r"no payload for ncnn .*\(litert, onnxruntime") as caught:
        payloads.command("ncnn")
    assert caught.value.kind == "engine"
    with pytest.raises(AgentError, match="is gone"):
        payloads.command("openvino")
    Path(home.payloads).write_text("{")
    with pytest.raises(AgentError, match="cannot be read"):
        payloads.command("tvm")


def test_without_payloads_the_agents_interpreter_serves(tmp_path):
    assert Payloads(None, "python3").command("tvm") == (
        ["python3", "-m", "device_agent.execute.executor"],
        "",
    )
    assert Payloads(AgentFolder(str(tmp_path)), "python3").command("tvm")[1] == ""


def test_the_meter_is_told_of_the_board_if_it_is_known(home):
    payloads = Payloads(home, "python3", "/elsewhere")
    meter = ["python3", "-m", "device_agent.measure.meter", "--system-root", "/elsewhere"]
    assert payloads.meter() == meter
    Path(home.board).write_text("{}")
    assert payloads.meter() == [*meter, "--board", home.board]


# -- units of systemd


def unit(home: Path, **options) -> str:
    return SystemdUnit(home=str(home), python=sys.executable, user="daemon", **options).text()


@pytest.mark.parametrize(
    ("options", "exposure"),
    [
        ({"system": True}, 25),
        ({"system": True, "power_modes": True}, 25),
        ({"system": True, "power_modes": True, "nvpmodel": True}, 60),
    ],
)
def test_systemd_takes_the_unit_and_finds_little_exposed(tmp_path, options, exposure):
    """What `systemd-analyze security` counts, in tenths; a unit without hardening has 92 to 96."""
    file = tmp_path / control.UNIT
    file.write_text(unit(tmp_path / "with space: and %", **options))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True)
    assert done.returncode == 0 and control.UNIT not in done.stderr, done.stderr
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={exposure}"]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_users_unit_is_taken(tmp_path):
    file = tmp_path / control.UNIT
    file.write_text(unit(tmp_path))
    done = subprocess.run(["systemd-analyze", "verify", "--user", str(file)], capture_output=True, text=True)
    assert control.UNIT not in done.stderr, done.stderr
    assert "WantedBy=default.target" in file.read_text() and "User=" not in file.read_text()


def test_the_system_unit_lets_nobody_in_and_nothing_out(tmp_path):
    lines = unit(tmp_path, system=True).splitlines()
    for line in (
        "User=daemon",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=tmpfs",
        f"BindPaths={tmp_path}",
        "IPAddressDeny=any",
        "IPAddressAllow=localhost",
        "DevicePolicy=closed",
        "CapabilityBoundingSet=",
    ):
        assert line in lines
    # Root's part is narrow: owners of single files of /sys.
    grants = [line for line in lines if line.startswith("ExecStartPre=+")]
    assert len(grants) == 1 and "energy_uj" in grants[0]


def test_grants_give_one_user_the_files_and_nothing_else(tmp_path):
    text = unit(tmp_path, system=True, power_modes=True)
    grants = [line for line in text.splitlines() if line.startswith("ExecStartPre=+")]
    assert len(grants) == 4 and "ReadWritePaths=-/sys/devices/system/cpu/cpufreq" in text
    script = grants[1].partition('-c "')[2][:-1].replace("$$", "$")
    assert "scaling_governor" in script
    for name in ("policy0", "policy1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scaling_governor").write_text("x")
    own = script.replace("/sys/devices/system/cpu/cpufreq", str(tmp_path))
    own = own.replace("chown daemon", f"chown {os.geteuid()}")
    subprocess.run(["sh", "-c", own], check=True)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("policy*/scaling_governor")} == {0o644}


def test_the_unit_follows_the_agent_in_use(tmp_path):
    (tmp_path / "agent/current").mkdir(parents=True)
    assert f"WorkingDirectory={tmp_path}/agent/current" in unit(tmp_path)


def fake_systemctl(folder: Path, monkeypatch, body: str) -> Path:
    """A systemctl that writes down what it is asked."""
    program = folder / "bin/systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{body}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return folder / "asked"


def test_an_installed_unit_starts_the_agent(tmp_path, monkeypatch):
    home = AgentFolder(str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    units = tmp_path / "config/systemd/user"
    units.mkdir(parents=True)
    (units / control.UNIT).write_text(unit(Path(home.root)))
    serve = (
        f"cd {Path(control.CODE).parent} && exec {sys.executable} -m device_agent serve --home {home.root}"
    )
    body = f'[ "$2" = start ] || exit 0\nsetsid sh -c "{serve}" >/dev/null 2>&1 </dev/null &'
    asked = fake_systemctl(tmp_path, monkeypatch, body)
    record = control.start(home, sys.executable)
    try:
        assert asked.read_text() == f"--user start {control.UNIT}\n"
        assert control.ticket(home, sys.executable)["pid"] == record["pid"]
    finally:
        assert control.stop(home)
    assert asked.read_text().splitlines()[-1] == f"--user stop {control.UNIT}"


def test_a_unit_that_does_not_start_says_so(tmp_path, monkeypatch):
    home = AgentFolder(str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    units = tmp_path / "config/systemd/user"
    units.mkdir(parents=True)
    (units / control.UNIT).write_text(unit(Path(home.root)))
    fake_systemctl(tmp_path, monkeypatch, "echo 'Failed to connect to bus' >&2; exit 1")
    with pytest.raises(AgentError, match=r"Failed to connect to bus; see: journalctl --user"):
        control.start(home, sys.executable)


def test_the_systems_unit_is_started_by_its_administrator(tmp_path, monkeypatch):
    home = AgentFolder(str(tmp_path / "home"))
    monkeypatch.setattr(control, "SYSTEM_UNITS", str(tmp_path))
    monkeypatch.setattr(control, "_RESTART_S", 0.1)
    (tmp_path / control.UNIT).write_text(unit(Path(home.root), system=True))
    with pytest.raises(AgentError, match=r"on the device type: sudo systemctl start"):
        control.start(home, sys.executable)
