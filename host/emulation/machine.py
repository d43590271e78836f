"""A whole emulated machine with an SSH server, reached through one port of this host's loopback.

The machine has no other network. It keeps everything in memory: what is installed is gone when it stops.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from host.emulation.image import USER, Image, image
from host.emulation.tools import tool
from host.errors import DeviceError

ADDRESS = "127.0.0.1"
_MEMORY_MB = 2048
_CORES = 2
# Name of the first serial line in the kernel, by architecture.
_CONSOLES = {"aarch64": "ttyAMA0", "riscv64": "ttyS0"}
_BOOT_S = 180.0
_STOP_S = 10.0
_READY = "edgetlm: ready"


@dataclass(frozen=True)
class Machine:
    """A machine that was started.

    Attributes:
        folder: with its keys, its console and its process id.
        port: of its SSH server on this host's loopback interface.
        pid: of the emulator.
    """

    folder: Path
    port: int
    pid: int

    @property
    def user(self) -> str:
        """The name of the only user who may log in."""
        return USER

    @property
    def identity(self) -> Path:
        """The private key that lets `user` in."""
        return self.folder / "identity"

    @property
    def known_hosts(self) -> Path:
        """File with the machine's own key and nothing else."""
        return self.folder / "known_hosts"

    @property
    def console(self) -> Path:
        """The text that the machine wrote while it started."""
        return self.folder / "console.log"


def start(folder: Path, architecture: str = "aarch64", processor: str = "cortex-a72") -> Machine:
    """Start a machine and wait until its SSH server answers; one that runs already is returned.

    Args:
        folder: for its files, its own.
        architecture: "aarch64" or "riscv64".
        processor: qemu's name and options of it.

    Raises:
        UserError: a program is missing.
        DeviceError: it does not start.
    """
    if (found := running(folder)) is not None:
        return found
    made = image(architecture)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_keys(folder)
    (folder / "console.log").unlink(missing_ok=True)
    port = _free_port()
    command = _command(made, folder, port, architecture, processor)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeviceError(f"qemu-system-{architecture} does not start: {' '.join(done.stderr.split())[:300]}")
    host_key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[{ADDRESS}]:{port} {' '.join(host_key)}\n")
    (folder / "port").write_text(str(port))
    (folder / "architecture").write_text(architecture)
    machine = running(folder)
    if machine is None:
        raise DeviceError(f"the emulated machine ended at once; see {folder / 'console.log'}")
    try:
        _await_ready(machine)
    except BaseException:
        stop(folder)
        raise
    return machine


def running(folder: Path) -> Machine | None:
    """The machine of a folder, None where it does not run."""
    try:
        pid = int((folder / "pid").read_text())
        port = int((folder / "port").read_text())
        # Process ids are used again; the emulator has its folder in its command line.
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return Machine(folder, port, pid) if str(folder / "pid").encode() in command else None


def architecture_of(folder: Path) -> str:
    """Architecture of the machine that runs or ran in a folder, "" where its files are gone."""
    try:
        return (folder / "architecture").read_text()
    except FileNotFoundError:
        return ""


def stop(folder: Path) -> None:
    """Switch a machine off; what was installed on it is gone. No error where it does not run."""
    machine = running(folder)
    if machine is None:
        return
    for number, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(machine.pid, number)
        until = time.monotonic() + patience_s
        while running(folder) is not None and time.monotonic() < until:
            time.sleep(0.05)
    (folder / "pid").unlink(missing_ok=True)


def _command(made: Image, folder: Path, port: int, architecture: str, processor: str) -> list[str]:
    program = str(tool(f"qemu-system-{architecture}"))
    command = [program, "-M", "virt", "-cpu", processor, "-smp", str(_CORES)]
    command += ["-m", str(_MEMORY_MB), "-display", "none", "-monitor", "none", "-parallel", "none"]
    command += ["-serial", f"file:{folder / 'console.log'}", "-nodefaults", "-no-reboot"]
    command += ["-kernel", str(made.kernel), "-initrd", str(made.initrd)]
    command += ["-append", f"console={_CONSOLES[architecture]} quiet panic=-1"]
    command += ["-netdev", f"user,id=net,restrict=on,hostfwd=tcp:{ADDRESS}:{port}-10.0.2.15:22"]
    # Without a boot ROM for the card, which Debian has in a package of its own.
    command += ["-device", "virtio-net-pci,netdev=net,romfile="]
    # A disk that is an archive: all machines have one, and what lies on it appears in no command line.
    command += ["-drive", f"if=none,id=keys,format=raw,readonly=on,file={folder / 'keys.tar'}"]
    command += ["-device", "virtio-blk-pci,drive=keys"]
    return [*command, "-pidfile", str(folder / "pid"), "-daemonize"]


def _make_keys(folder: Path) -> None:
    for name in ("identity", "host_key"):
        if (folder / name).exists():
            continue
        command = [str(tool("ssh-keygen")), "-q", "-t", "ed25519", "-N", "", "-C", "edgetlm-emulated"]
        done = subprocess.run(
            [*command, "-f", str(folder / name)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DeviceError(f"ssh-keygen cannot make {folder / name}: {done.stderr.strip()}")
    archive = folder / "keys.tar"
    archive.touch(mode=0o600)
    with tarfile.open(archive, "w") as output:
        output.add(folder / "identity.pub", "authorized_keys")
        output.add(folder / "host_key", "host_key")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def _await_ready(machine: Machine) -> None:
    until = time.monotonic() + _BOOT_S
    while time.monotonic() < until:
        if running(machine.folder) is None:
            break
        said = machine.console.read_text(errors="replace") if machine.console.exists() else ""
        if _READY in said and _answers(machine.port):
            return
        time.sleep(0.2)
    last = machine.console.read_text(errors="replace").strip().splitlines()[-1:]
    raise DeviceError(f"the emulated machine did not start ({' '.join(last)}); see {machine.console}")


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((ADDRESS, port), timeout=5.0) as connection:
            connection.settimeout(5.0)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
