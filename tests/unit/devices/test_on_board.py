"""The board's half of installing, run here: it parses on old Pythons, and says what the service can do."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path

import pytest

from host.devices import on_board
from host.devices.board_shell import order
from host.devices.install import as_root
from host.errors import DeviceError
from host.ssh import Completed


class Board:
    """A link whose commands end as the test says."""

    name = "bench"

    class endpoint:  # noqa: N801
        address = "me@board"

    def __init__(self, done: Completed) -> None:
        self.done = done

    def run(self, *_arguments, **_more) -> Completed:
        return self.done


def test_it_parses_on_the_oldest_python_that_a_board_may_have():
    ast.parse(Path(on_board.__file__).read_text(), feature_version=(3, 6))


def test_an_old_python_says_that_it_is_too_old(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 6, 9))
    assert on_board.main("{}") == 0
    done = Completed(0, capsys.readouterr().out.encode(), "")
    with pytest.raises(DeviceError, match=r"the agent needs 3\.8 or newer; .* apt-get install python3\.8"):
        order(Board(done), "status")


@pytest.mark.parametrize(
    ("done", "message"),
    [
        (Completed(96, b"", ""), "no Python 3.*sudo apt-get install python3"),
        (Completed(127, b"", "sh: not found\n"), r"cannot carry out 'status' \(sh: not found\)"),
        (Completed(0, b"Welcome!\nnot json\n", ""), "cannot carry out"),
    ],
)
def test_boards_that_cannot_answer(done, message):
    with pytest.raises(DeviceError, match=message):
        order(Board(done), "status")


def test_a_greeting_of_the_login_script_does_no_harm():
    assert order(Board(Completed(0, b'Welcome!\n{"a": 1}\n', "")), "status") == {"a": 1}


def test_a_password_of_sudo_is_the_users_to_type():
    done = Completed(1, b"", "sudo: a password is required\n")
    with pytest.raises(DeviceError, match=r"a password is required\); type: ssh -t me@board 'sudo sh x'"):
        as_root(Board(done), "sh x", "it cannot be")


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A systemd that writes down what it is told."""
    programs = tmp_path / "bin"
    programs.mkdir()
    told = tmp_path / "told"
    for name in ("systemctl", "loginctl"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {told}\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("EDGETLM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(on_board, "_BOOTED", str(programs))
    monkeypatch.setattr(on_board, "_LINGERING", str(tmp_path))
    return told


def test_a_users_unit_is_installed(systemd, tmp_path):
    text = f"[Service]\nExecStart=python3 {tmp_path / 'home'}\n"
    found = on_board.add_unit({"text": text})
    assert (found["available"], found["enabled"], found["linger"]) == (True, True, False)
    assert (tmp_path / ".config/systemd/user/edgetlm-agent.service").read_text() == text
    assert systemd.read_text().splitlines() == [
        "systemctl --user show-environment",
        "systemctl --user daemon-reload",
        "systemctl --user enable edgetlm-agent.service",
        "loginctl --no-ask-password enable-linger",
        "systemctl --user show-environment",
    ]
    systemd.unlink()
    (tmp_path / on_board._user()).touch()
    assert on_board.add_unit({"text": text})["linger"]
    assert "enable-linger" not in systemd.read_text()


def test_removing_disables_the_unit(systemd, tmp_path):
    on_board.add_unit({"text": str(tmp_path / "home")})
    answer = on_board.remove_all({"purge": True})
    unit = tmp_path / ".config/systemd/user/edgetlm-agent.service"
    assert answer["removed"] == [str(unit)]
    assert not unit.exists()
    assert "systemctl --user disable --now edgetlm-agent.service" in systemd.read_text()


def test_without_systemd_whoever_connects_starts_the_agent(systemd, monkeypatch, tmp_path):
    monkeypatch.setattr(on_board, "_BOOTED", str(tmp_path / "nowhere"))
    found = on_board.add_unit({"text": "x"})
    assert (found["available"], found["reason"]) == (False, "this board is not run by systemd")


def test_the_version_in_use_and_the_running_one_are_kept(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("EDGETLM_HOME", str(home))
    for name in ("old", "running", "new", "left.1234.part"):
        (home / "agent" / name / "device_agent").mkdir(parents=True)
    for name in ("used", "unused"):
        (home / "payloads" / name).mkdir(parents=True)
    (home / "device").mkdir()
    (home / "device" / "agent.json").write_text(
        json.dumps({"code": str(home / "agent" / "running" / "device_agent")})
    )
    on_board.apply({"agent": "new", "files": {"payloads.json": {"tvm": {"path": "payloads/used"}}}})
    assert sorted(on_board.prune({})["removed"]) == ["left.1234.part", "old", "unused"]
    assert (home / "agent" / "current").readlink() == Path("new")
    with pytest.raises(on_board.Refused, match="not installed whole"):
        on_board.apply({"agent": "missing"})
