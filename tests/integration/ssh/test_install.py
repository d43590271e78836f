"""The agent on a board: nothing is sent twice, and whatever breaks off leaves nothing half-installed."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest

import sdk
from host.devices import DeviceEntry, Registry, board_shell, install
from host.devices.install import Installer, board_status, remove_from_board
from host.errors import DeviceError, DeviceFull
from host.payload import Payload, agent_archive
from host.payload.archive import content_hash, files_below
from host.transport import connect
from host.transport.installing import install_agent
from host.transport.ssh import ssh_connection_to
from targets import board_for, declared
from tests.integration.small_models import convnet
from tests.integration.ssh.sshd import cutting
from tests.integration.ssh.versions import other_version

_WAIT_S = 60.0


def _install(entry: DeviceEntry) -> int:
    with ssh_connection_to(entry) as link:
        installer = Installer(link)
        installer.agent()
        return installer.sent_bytes


def _agents(board) -> list[str]:
    folder = board.root / "agent"
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink())


def test_installed_twice_sends_nothing_the_second_time(entry, board):
    digest = agent_archive().sha256
    assert _install(entry) == len(agent_archive().content)
    assert (board.root / "agent" / "current").readlink().name == digest
    assert board.root.stat().st_mode & 0o777 == 0o700
    assert not list((board.root / "incoming").iterdir())
    assert _install(entry) == 0
    with connect("bench") as device:
        assert device.describe().software["python"]


def test_an_upload_that_is_cut_goes_on_where_it_was(entry, board, client_home, tmp_path):
    folder = tmp_path / "runtime"
    folder.mkdir()
    (folder / "library.so").write_bytes(np.random.default_rng(0).bytes(6_000_000))
    files = files_below(folder)
    payload = Payload("python", "tvm", folder, content_hash(files), 6_000_000)
    kind = board_for(declared()["raspberry_pi_4"])
    with cutting(board.port) as proxy:
        known = client_home / ".ssh" / "known_hosts"
        known.write_text(known.read_text().replace(str(board.port), str(proxy.port)))
        through = replace(entry, port=proxy.port)
        with ssh_connection_to(through) as link:
            installer = Installer(link)
            proxy.allowed_bytes = proxy.passed_bytes + 4_000_000
            with pytest.raises(DeviceError, match=r"broke off: .* run the same command again, it goes on"):
                installer.payload(payload, kind)
        assert not (board.root / "payloads.json").exists()
        board.wait_for_nobody()
        (arrived,) = (board.root / "incoming").iterdir()
        have = arrived.stat().st_size
        assert 0 < have < 6_000_000
        proxy.allowed_bytes = None
        with ssh_connection_to(through) as link:
            installer = Installer(link)
            assert installer.payload(payload, kind)
            assert have + installer.sent_bytes == pytest.approx(6_000_000, rel=0.01)
            assert not installer.payload(payload, kind)
    installed = board.root / "payloads" / payload.sha256 / "library.so"
    assert installed.read_bytes() == (folder / "library.so").read_bytes()
    serves = json.loads((board.root / "payloads.json").read_text())
    assert serves == {"tvm": {"kind": "python", "path": f"payloads/{payload.sha256}"}}
    assert json.loads((board.root / "board.json").read_text()) == json.loads(json.dumps(kind.facts()))


def test_a_connection_whose_loss_paramiko_has_not_noticed_is_a_cut_too(entry, board):
    sent = []
    with ssh_connection_to(entry) as link:

        def lose(done: int, total: int) -> None:
            # Its reader still waits for the socket; writing is what fails, and so does closing the channel.
            sent.append(done)
            link._transport.packetizer.write_all = broken

        def broken(data: bytes) -> None:
            raise EOFError

        installer = Installer(link, progress=lose)
        with pytest.raises(
            DeviceError, match="sending files broke off: EOFError; run the same command again"
        ):
            installer.agent()
        with pytest.raises(DeviceError, match=r"a command \(true\) broke off: EOFError"):
            link.run("true")
    assert sent
    assert _install(entry) == len(agent_archive().content)


def test_a_file_channel_that_ends_alone_is_no_full_disk(entry, board):
    with ssh_connection_to(entry) as link:
        installer = Installer(link)
        with pytest.raises(DeviceError, match="sending files broke off") as caught, link.sftp() as files:
            channel = files.get_channel()
            assert channel is not None
            channel.close()
            files.stat(".")
        assert not isinstance(caught.value, DeviceFull)
        assert installer.agent()


def test_an_installation_that_is_cut_is_not_half_installed(entry, board, monkeypatch):
    marker = board.folder / "unpacking"
    pause = f'open({str(marker)!r}, "w").close(); time.sleep(600)'
    script = board_shell._script()
    paused = script.replace(b"tar.extractall(folder)\n", f"tar.extractall(folder); {pause}\n".encode())
    assert paused != script

    def cut_when_unpacking() -> None:
        until = time.monotonic() + _WAIT_S
        while not marker.exists() and time.monotonic() < until:
            time.sleep(0.01)
        for login in board.logins():
            for process in login.children(recursive=True):
                if process.name().startswith("python"):
                    process.kill()
        board.cut()

    killer = threading.Thread(target=cut_when_unpacking)
    killer.start()
    with monkeypatch.context() as patch, pytest.raises(DeviceError):
        patch.setattr(board_shell, "_script", lambda: paused)
        _install(entry)
    killer.join()
    assert not (board.root / "agent" / "current").exists()
    (left,) = _agents(board)
    assert left.endswith(".part")
    # The archive had arrived; nothing of it is sent again.
    with ssh_connection_to(entry) as link:
        installer = Installer(link)
        installer.agent()
        assert installer.sent_bytes == 0
        installer.prune()
    assert _agents(board) == [agent_archive().sha256]


def test_what_arrives_damaged_is_not_installed(entry, board):
    incoming = board.root / "incoming"
    incoming.mkdir(parents=True, mode=0o700)
    (incoming / f"{agent_archive().sha256}.{install._host_mark()}.part").write_bytes(b"x" * 100)
    with pytest.raises(DeviceError, match="what arrived is not what was sent"):
        _install(entry)
    assert not list(incoming.iterdir())
    assert _install(entry) == len(agent_archive().content)


def test_an_agent_of_another_version_is_replaced_and_its_files_go(entry, board, monkeypatch):
    ours = agent_archive()
    other = other_version(board.folder)
    with monkeypatch.context() as patch:
        for module in ("host.devices.install", "host.transport.ssh"):
            patch.setattr(f"{module}.agent_archive", lambda: other)
        _install(entry)
        with connect("bench") as device:
            before = device.request("device.holder")
    assert before["ok"]
    assert _agents(board) == [other.sha256]
    said: list[str] = []
    monkeypatch.setattr("host.transport.ssh.note", said.append)
    with connect("bench") as device:
        device.describe()
    assert said == ["bench: its agent was of another version and has been replaced"]
    assert _agents(board) == [ours.sha256]


def test_a_full_disk_says_so_and_leaves_nothing(entry, board):
    small = board.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(small)], check=True)
    try:
        full = replace(entry, options={"home": str(small / "home")})
        with (
            ssh_connection_to(full) as link,
            pytest.raises(DeviceFull, match=r"MB are free in .* free some there"),
        ):
            Installer(link, full.options["home"]).agent()
        assert not (small / "home" / "agent").exists()
        # Space that vanishes while it is used is the same to the user.
        with ssh_connection_to(full) as link:
            installer = Installer(link, full.options["home"])
            installer.status = replace(installer.status, free_bytes=1 << 40)
            with pytest.raises(DeviceFull, match=r"no space left on the board|is the board's disk full"):
                installer.agent()
        assert not (small / "home" / "agent" / "current").exists()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_another_users_folder_is_refused(entry, board):
    board.root.mkdir(parents=True)
    os.chown(board.root, 65534, 65534)
    with ssh_connection_to(entry) as link, pytest.raises(DeviceError, match="belongs to another user"):
        board_status(link)


def test_from_a_bare_board_to_a_verified_model(entry, board, tmp_path):
    installed = install_agent(entry)
    assert installed.board.name == "x86_64"
    assert installed.sent_bytes > 0
    assert install_agent(entry).sent_bytes == 0
    model = convnet(tmp_path / "net.onnx")
    deployed = sdk.deploy(model, device="bench", peers=(), threads=1, backend="tvm")
    assert deployed.result.verification.passed
    with connect("bench") as device:
        (only,) = device.bundles()
        assert only["active"]
        assert only["path"].startswith(str(board.root))
        # The installed bundle is read where it lies: nothing of the model is on this host's paths.
        assert not device.shares_files


def test_removed_from_the_board(entry, board):
    _install(entry)
    with connect("bench") as device:
        device.describe()
    record = (board.root / "device" / "agent.json").read_text()
    with ssh_connection_to(entry) as link:
        removed = remove_from_board(link)
    assert str(board.root / "agent") in removed
    assert (board.root / "device" / "bundles").is_dir()
    assert _ends(int(json.loads(record)["pid"]))
    _install(entry)
    with ssh_connection_to(entry) as link:
        assert remove_from_board(link, purge=True) == [str(board.root)]
    assert not board.root.exists()
    assert Registry().get("bench") == entry


def _ends(pid: int) -> bool:
    """Whether a process ends soon; what waits for its adopted parent to notice its end has ended.

    An agent gives up its locks, which is what the command waits for, shortly before its process ends.
    """
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False
