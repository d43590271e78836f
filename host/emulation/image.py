"""A whole machine in memory: Debian's kernel and a root file system with an SSH server."""

from __future__ import annotations

import functools
import importlib.util
import lzma
import marshal
import re
import sys
import tarfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from host.emulation.cpio import CpioWriter
from host.emulation.rootfs import Recipe, made

USER = "edge"
_LIBRARY = "usr/lib/python3"
# Flags of a compiled file: it carries the hash of its source, which need not be compared.
_UNCHECKED = (1).to_bytes(4, "little")
_UID = 1000
# What a bare board with Debian has, less than that: no systemd, no apt.
_PACKAGES = (
    *("base-files", "bash", "dash", "coreutils", "findutils", "grep", "sed", "tar", "gzip", "procps"),
    *("iproute2", "kmod", "mount", "util-linux", "hostname", "libstdc++6", "libgcc-s1", "python3"),
    *("openssh-server", "openssh-sftp-server"),
)
_LEFT_OUT = (
    *("boot/System.map", "boot/config", "usr/share/perl", "var/cache/", "var/lib/apt/"),
    *("usr/share/initramfs-tools/", "usr/share/zoneinfo/"),
)


@dataclass(frozen=True)
class _Contents:
    """The content of an image.

    Attributes:
        recipe: its packages.
        python: version of Python among them.
    """

    recipe: Recipe
    python: tuple[int, int]


_CONTENTS = {
    "aarch64": _Contents(
        Recipe(
            "aarch64",
            "bookworm",
            (*_PACKAGES, "linux-image-cloud-arm64"),
            left_out=(*_LEFT_OUT, "usr/lib/aarch64-linux-gnu/perl", "usr/lib/python3.11/test/"),
            version=8,
        ),
        (3, 11),
    ),
    # Debian's first release for it.
    "riscv64": _Contents(
        Recipe(
            "riscv64",
            "trixie",
            (*_PACKAGES, "linux-image-riscv64"),
            left_out=(
                *(*_LEFT_OUT, "usr/lib/riscv64-linux-gnu/perl", "usr/lib/python3.13/test/"),
                # Device trees of boards: the emulator makes its own.
                "usr/lib/linux-image-",
            ),
            version=8,
        ),
        (3, 13),
    ),
}
# Of the kernel's modules the bus of the devices, the network card, and the disk by which keys come.
_MODULES = ("virtio_pci", "virtio_net", "virtio_blk")
_BUILT_IN = "modules.builtin"
_XZ = b"\xfd7zXZ\0"
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_CONFIGURATION = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/bash\n"
        "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
        f"{USER}:x:{_UID}:{_UID}::/home/{USER}:/bin/bash\n"
        "other:x:1001:1001::/home/other:/bin/bash\n"
    ),
    "etc/group": f"root:x:0:\nnogroup:x:65534:\n{USER}:x:{_UID}:\nother:x:1001:\n",
    "etc/shadow": f"root:*:::::::\nsshd:!:::::::\n{USER}:*:::::::\nother:*:::::::\n",
    "etc/hostname": "edgetlm\n",
    "etc/hosts": "127.0.0.1 localhost edgetlm\n",
    "etc/ssh/sshd_config": (
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
        "AuthorizedKeysFile /etc/ssh/authorized_keys\n"
        "PasswordAuthentication no\n"
        "UsePAM no\n"
        "UseDNS no\n"
        "AllowTcpForwarding yes\n"
        "Subsystem sftp internal-sftp\n"
    ),
}
# Where an interpreter keeps what it compiles of its library, which this user cannot write to.
_KEEPS_COMPILED = f"Match User {USER}\n    SetEnv PYTHONPYCACHEPREFIX=/home/{USER}/.cache/python\n"
# The machine's own address in qemu's user network; restrict=on keeps everything but SSH away from it.
_INIT = """#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /run/sshd
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for module in {modules}; do insmod /lib/modules/edgetlm/$module; done
hostname edgetlm
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
until [ -b /dev/vda ]; do sleep 0.1; done
mkdir -m 700 /run/keys
tar -x -f /dev/vda -C /run/keys
cat /run/keys/authorized_keys > /etc/ssh/authorized_keys
(umask 077; cat /run/keys/host_key > /etc/ssh/ssh_host_ed25519_key)
rm -r /run/keys
/usr/sbin/sshd -E /run/sshd.log
echo edgetlm: ready
# The first process has to collect those whose parents are gone; a shell that waits does.
while :; do sleep 3600 & wait; done
"""


@dataclass(frozen=True)
class Image:
    """A kernel and a root file system, which qemu boots.

    Attributes:
        kernel: its file.
        initrd: the root file system.
    """

    kernel: Path
    initrd: Path


def image(architecture: str) -> Image:
    """The image, from the cache or made in about half a minute.

    Args:
        architecture: "aarch64" or "riscv64".

    Raises:
        UserError: a program is missing.
        DeviceError: Debian's packages cannot be fetched.
    """
    contents = _CONTENTS[architecture]
    folder = made("machine", contents.recipe, functools.partial(_make, contents))
    return Image(folder / "kernel", folder / "initrd")


def _make(contents: _Contents, archive: tarfile.TarFile, folder: Path) -> None:
    modules: dict[str, bytes] = {}
    folders: set[str] = set()
    with (folder / "initrd").open("wb") as output, CpioWriter(output) as cpio:
        for entry in archive:
            name = entry.name.removeprefix("./")
            content = _content(archive, entry)
            if name.startswith("boot/vmlinu"):
                (folder / "kernel").write_bytes(content)
            elif name.startswith(("lib/modules/", "usr/lib/modules/")):
                modules[Path(name).name.removesuffix(".xz").removesuffix(".ko")] = content
            elif name and name not in _CONFIGURATION and contents.recipe.wants(name + "/" * entry.isdir()):
                _copy(cpio, entry, name, content)
                if _compiles_for(contents.python) and name.startswith(_LIBRARY) and name.endswith(".py"):
                    _add_compiled(cpio, contents.python, name, content, folders)
        _own_files(cpio, modules, _compiles_for(contents.python))


def _compiles_for(python: tuple[int, int]) -> bool:
    """Whether this host's interpreter compiles for an image's: the format changes with each version."""
    return sys.version_info[:2] == python


def _add_compiled(
    cpio: CpioWriter, python: tuple[int, int], name: str, source: bytes, folders: set[str]
) -> None:
    """The compiled form of a Python file (PEP 552, never checked), which a board made at installation.

    Without it an emulated interpreter compiles its library at every start.
    """
    path = Path(name)
    folder = str(path.parent / "__pycache__")
    if folder not in folders:
        folders.add(folder)
        cpio.folder(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, f"/{name}", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return  # files that tools are tested with
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
    tag = "cpython-{}{}".format(*python)
    cpio.file(f"{folder}/{path.stem}.{tag}.pyc", header + marshal.dumps(code))


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    # Hard links are stored as their target's name; each becomes a file of its own.
    if not (entry.isfile() or entry.islnk()):
        return b""
    file = archive.extractfile(entry)
    assert file is not None
    return file.read()


def _copy(cpio: CpioWriter, entry: tarfile.TarInfo, name: str, content: bytes) -> None:
    if entry.isdir():
        cpio.folder(name, entry.mode)
    elif entry.issym():
        cpio.link(name, entry.linkname)
    elif entry.isfile() or entry.islnk():
        cpio.file(name, content, entry.mode)


def _own_files(cpio: CpioWriter, packed: dict[str, bytes], compiled: bool) -> None:
    configuration = dict(_CONFIGURATION)
    if not compiled:
        # Once for all programs, then: an interpreter that keeps nothing takes minutes of a deployment.
        configuration["etc/ssh/sshd_config"] += _KEEPS_COMPILED
    for name, text in configuration.items():
        cpio.file(name, text.encode(), 0o600 if name == "etc/shadow" else 0o644)
    cpio.folder("lib/modules/edgetlm")
    wanted = _with_needed(packed)
    for module, content in wanted.items():
        cpio.file(f"lib/modules/edgetlm/{module}", content)
    cpio.folder(f"home/{USER}", 0o755, _UID)
    cpio.folder("home/other", 0o755, 1001)
    # The kernel opens it for the first process before anything is mounted.
    cpio.device("dev/console", 0o600, 5, 1)
    cpio.file("init", _INIT.format(modules=" ".join(wanted)).encode(), 0o755)


def _with_needed(packed: dict[str, bytes]) -> dict[str, bytes]:
    """The modules that are wanted and those that they need, in the order in which they can be loaded.

    What a kernel has built in is no module of it.
    """
    built_in = {Path(line).name for line in packed[_BUILT_IN].decode().split()}
    order: dict[str, bytes] = {}

    def add(name: str) -> None:
        if f"{name}.ko" in built_in:
            return
        content = packed[name]
        if content.startswith(_XZ):
            content = lzma.decompress(content)
        found = _DEPENDS.search(content)
        for needed in found[1].decode().split(",") if found and found[1] else []:
            add(needed)
        order.setdefault(name, content)

    for name in _MODULES:
        add(name)
    return order
