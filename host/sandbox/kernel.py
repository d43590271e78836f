"""What the kernel offers to confine this process: Landlock, seccomp, namespaces and resource limits.

A short layer over the system calls themselves, for Linux on x86-64 and AArch64. The packages do not fit:
`pyseccomp` needs a shared library that hosts do not have, and none of the ones for Landlock knows TCP and
signals. Numbers and structures are from the kernel's headers (`landlock.h`, `seccomp.h`, `unistd.h`).
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGKILL = 9
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000

# Rights of Landlock on files.
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE, _MAKE = 0b11 << 4, 0b1_1111_11 << 6
_MAKE_PLAIN = 1 << 7 | 1 << 8 | 1 << 12  # folders, files and links; no devices, sockets or pipes
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_BASE = _EXECUTE | _WRITE | _READ | _LIST | _REMOVE | _MAKE
_BY_VERSION = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL}
_TCP, _SCOPES = 0b11, 0b11

# Refused with EPERM: networks, other processes, privileges, and what changes a file without opening it, which
# Landlock does not govern. The two numbers are those of x86-64 and AArch64; 0 where there is no such call.
_REFUSED = {
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "bind": (49, 200), "listen": (50, 201),
    "accept4": (288, 242), "io_uring_setup": (425, 425), "ptrace": (101, 117), "setpgid": (109, 154),
    "setsid": (112, 157), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "personality": (135, 92), "iopl": (172, 0), "ioperm": (173, 0),
    "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, 0),
    "lchown": (94, 0), "fchown": (93, 55), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "utime": (132, 0), "utimes": (235, 0), "futimesat": (261, 0),
    "utimensat": (280, 88), "mq_open": (240, 180), "shmget": (29, 194), "msgget": (68, 186),
    "fsopen": (430, 430), "move_mount": (429, 429), "mount_setattr": (442, 442),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277), "arm64": (1, 0xC00000B7, 277)}
_ALLOW, _EPERM, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_X32 = 0x40000000


@dataclass(frozen=True)
class Bounds:
    """Limits that the kernel keeps for each process.

    Attributes:
        memory_bytes: of its own data.
        cpu_s: of computing time.
        file_bytes: of a file that it writes.
    """

    memory_bytes: int
    cpu_s: int
    file_bytes: int


def limit(bounds: Bounds) -> None:
    """Limit this process and those that it starts, and leave no memory image behind when it crashes."""
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, bounds.memory_bytes),
        (resource.RLIMIT_CPU, bounds.cpu_s),
        (resource.RLIMIT_FSIZE, bounds.file_bytes),
    ):
        _, most = resource.getrlimit(kind)
        wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(kind, (wanted, wanted))


def own_bytes(kind: str) -> int:
    """Memory of this process now, which a copy of it has from the beginning; 0 where the system does not say.

    Args:
        kind: "VmData" is what counts against the kernel's limit, "RssAnon" what is used of it.
    """
    try:
        with Path("/proc/self/status").open(encoding="utf-8") as status:
            words = next(line.split() for line in status if line.startswith(f"{kind}:"))
    except (OSError, StopIteration):
        return 0
    return int(words[1]) * 1024


def end_with_parent() -> None:
    """Have the kernel end this process when the one that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def confine(
    run: Iterable[Path], read: Iterable[Path], write: Iterable[Path], names: Iterable[Path] = ()
) -> tuple[str, ...]:
    """Restrict this process and all that it starts to what it needs; this cannot be undone.

    To be called before there is a second thread: Landlock confines the calling thread and its descendants.

    Args:
        run: folders with programs and libraries.
        read: files, and folders, to be read.
        write: folders to write in.
        names: folders whose names may be listed, and nothing else.

    Returns:
        What this kernel does not offer, each as half a sentence; () where everything is in force.
    """
    if sys.platform != "linux":
        return (f"{sys.platform} has neither Landlock nor seccomp",)
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return ("the kernel does not take privileges away",)
    missing = []
    version = library.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1 or not _landlock(library, version, run, read, write, names):
        missing.append("the kernel offers no Landlock, so files elsewhere can be read and written")
    if not _seccomp(library) and not _no_network(library) and version < 4:
        missing.append("the kernel offers neither seccomp nor namespaces, so there is a network")
    return tuple(missing)


def _landlock(
    library: ctypes.CDLL,
    version: int,
    run: Iterable[Path],
    read: Iterable[Path],
    write: Iterable[Path],
    names: Iterable[Path],
) -> bool:
    handled = _BASE
    for since, right in _BY_VERSION.items():
        handled |= right if version >= since else 0
    fields = [handled, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0]
    attributes = struct.pack("<QQQ", *fields)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = library.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    written = _READ | _LIST | _WRITE | _REMOVE | _MAKE_PLAIN | _REFER | _TRUNCATE | _IOCTL
    given = ((run, _READ | _LIST | _EXECUTE), (read, _READ | _LIST), (write, written), (names, _LIST))
    for paths, rights in given:
        for path in paths:
            _allow(library, ruleset, path, rights & handled)
    done = library.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return bool(done == 0)


def _allow(library: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    """Add a rule; what is not there needs none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= _OF_FILES
        library.syscall(_ADD_RULE, ruleset, 1, struct.pack("<Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _seccomp(library: ctypes.CDLL) -> bool:
    """Install the filter in every thread of this process."""
    machine = _MACHINES.get(platform.machine())
    if machine is None or sys.maxsize < 1 << 32:
        return False
    program = filter_program(machine[0], machine[1])
    described = _Program(len(program) // 8, program)
    return bool(library.syscall(machine[2], 1, 1, ctypes.byref(described)) == 0)


def filter_program(column: int, architecture: int) -> bytes:
    """The filter in the kernel's own bytecode: another architecture's calls end the process.

    Args:
        column: which of the numbers of a call is taken.
        architecture: the kernel's number of it (`audit.h`).
    """
    numbers = sorted(pair[column] for pair in _REFUSED.values() if pair[column])
    load, equal, least, answer = 0x20, 0x15, 0x35, 0x06
    steps = [
        (load, 0, 0, 4),  # the architecture
        (equal, 1, 0, architecture),
        (answer, 0, 0, _KILL),
        (load, 0, 0, 0),  # the number of the call
        (least, len(numbers) + 1, 0, _X32),  # calls of the x32 interface; AArch64 has no such numbers
    ]
    for index, number in enumerate(numbers):
        steps.append((equal, len(numbers) - index, 0, number))
    steps += [(answer, 0, 0, _ALLOW), (answer, 0, 0, _EPERM)]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _no_network(library: ctypes.CDLL) -> bool:
    """A network of its own without any interface; in a user namespace where the kernel requires one."""
    return bool(library.unshare(_CLONE_NEWNET) == 0 or library.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)
