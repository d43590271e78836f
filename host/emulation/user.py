"""A device of another architecture under qemu's user mode: its files, without which nothing can be started.

The agent's own Python is emulated, and so are the executors that it starts: they are run by a small script
that names the emulator, so that the system needs no registered binary formats and no privilege. The agent
finds a /proc and a /sys of the board that is emulated.
"""

from __future__ import annotations

import importlib.util
import shlex
import tarfile
from dataclasses import dataclass
from pathlib import Path

from host.emulation.processors import processor
from host.emulation.rootfs import Recipe, made, unpack
from host.emulation.tools import tool
from host.errors import DeviceError
from targets import Board, MachineDescription, declared

_PACKAGES = ("base-files", "libc6", "libstdc++6", "libgcc-s1", "python3-minimal", "libpython3-stdlib")
_SUITES = {"aarch64": "bookworm", "riscv64": "trixie"}
# What must be this machine's own: the emulator looks below the root file system first.
_HOSTS_OWN = (
    "dev/",
    "proc/",
    "sys/",
    "tmp/",
    "run/",
    "root/",
    "home/",
    "var/",
    "opt/",
    "srv/",
    "mnt/",
    "boot/",
)
_SHELL = """#!/bin/sh
# Started for every process of the emulated device.
exec {command} "$@"
"""


@dataclass(frozen=True)
class UserDevice:
    """The files of an emulated device.

    Attributes:
        folder: of this device.
    """

    folder: Path

    @property
    def python(self) -> Path:
        """The script that starts the emulated interpreter."""
        return self.folder / "python"

    @property
    def launcher(self) -> Path:
        """The script that starts an emulated executable, which is its first argument."""
        return self.folder / "launch"

    @property
    def home(self) -> Path:
        """The folder in which the agent keeps its state."""
        return self.folder / "home"

    @property
    def system(self) -> Path:
        """Prefix of /proc and /sys as the agent reads them."""
        return self.folder / "system"

    @property
    def code(self) -> Path:
        """Folder with the agent's package and nothing else."""
        return self.folder / "code"


def root(architecture: str) -> Path:
    """The root file system of an architecture, from the cache or made in about half a minute.

    Raises:
        UserError: a program is missing.
        DeviceError: Debian's packages cannot be fetched.
    """
    recipe = Recipe(architecture, _SUITES[architecture], _PACKAGES, left_out=_HOSTS_OWN)
    return made("root", recipe, lambda archive, folder: _fill(archive, recipe, folder))


def _fill(archive: tarfile.TarFile, recipe: Recipe, folder: Path) -> None:
    unpack(archive, recipe, folder)
    if not any((folder / "usr/bin").glob("python3.*")):
        raise DeviceError(f"Debian's packages for {recipe.architecture} hold no python3")


def create(folder: Path, board: Board, vector_bits: int) -> UserDevice:
    """Make a device's files; what is there already is brought up to date, its bundles stay.

    Args:
        folder: of the device, its own.
        board: that it is to be.
        vector_bits: length of RISC-V vectors.

    Raises:
        UserError: a program is missing.
        DeviceError: the files cannot be made.
    """
    device = UserDevice(folder)
    files = root(board.architecture)
    emulator = [str(tool(f"qemu-{board.architecture}-static")), "-cpu", processor(board.name, vector_bits)]
    emulator += ["-L", str(files)]
    interpreter = min(
        path for path in (files / "usr/bin").glob("python3.*") if path.name[8:].isdigit() and path.is_file()
    )
    try:
        for path in (folder, device.home, device.code):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The interpreter takes its own name for what to start further interpreters with.
        # What it compiles is kept, for all devices, and never beside this machine's own library. A variable
        # of this host that forbids it does not reach the device: to compile is slow there.
        compiled = files.with_name(f"compiled-{files.name}")
        named = [*emulator, "-E", "PYTHONHOME=/usr", "-E", f"PYTHONPYCACHEPREFIX={compiled}"]
        named += ["-U", "PYTHONDONTWRITEBYTECODE", "-0", str(device.python), str(interpreter)]
        _script(device.python, named)
        _script(device.launcher, emulator)
        _link_agent(device.code / "device_agent")
        _write_system(device.system, declared()[board.name])
    except OSError as error:
        raise DeviceError(f"{folder} cannot be written: {error}; free some space") from error
    return device


def _script(path: Path, command: list[str]) -> None:
    path.write_text(_SHELL.format(command=shlex.join(command)))
    path.chmod(0o700)


def _link_agent(link: Path) -> None:
    spec = importlib.util.find_spec("device_agent")
    if spec is None or not spec.submodule_search_locations:
        raise DeviceError("the package device_agent is not installed; install the complete package edgetlm")
    link.unlink(missing_ok=True)
    link.symlink_to(Path(next(iter(spec.submodule_search_locations))).resolve())


def _write_system(folder: Path, machine: MachineDescription) -> None:
    """Write the files in which the agent finds the facts of a board of this kind."""
    files = {
        "proc/cpuinfo": _cpuinfo(machine),
        "proc/meminfo": f"MemTotal: {machine.memory_bytes // 1024} kB\n",
        "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": f"{machine.frequency_hz / 1e3:.0f}\n",
    }
    if machine.device_tree_model:
        files["proc/device-tree/model"] = machine.device_tree_model + "\0"
    for index, (level, size) in enumerate(sorted(machine.cache_bytes.items())):
        cache = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files[f"{cache}/level"] = level.removeprefix("L") + "\n"
        files[f"{cache}/type"] = "Data\n" if level == "L1" else "Unified\n"
        files[f"{cache}/size"] = f"{size // 1024}K\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _cpuinfo(machine: MachineDescription) -> str:
    lines = []
    for number in range(machine.cores):
        lines.append(f"processor\t: {number}")
        if machine.machine == "riscv64":
            lines += [f"isa\t\t: {' '.join(machine.features)}", f"uarch\t\t: {machine.cpu_name}"]
            continue
        lines.append(f"Features\t: {' '.join(machine.features)}")
        implementer, _, part = machine.cpu_name.partition(":")
        if part:
            lines += [f"CPU implementer\t: {implementer}", f"CPU part\t: {part}"]
        else:
            lines.append(f"model name\t: {machine.cpu_name}")
    return "\n".join(lines) + "\n"
