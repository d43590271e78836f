"""The resources that a process uses, from psutil if it is installed, else from the kernel's own files.

Linux, proc(5): `/proc/PID/statm` counts pages, and its second number is the resident pages. `/proc/PID/stat`
counts clock ticks in user and kernel mode (fields 14 and 15; the name before them may contain anything).
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, NamedTuple, Optional

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """The resources of one process; all 0 if the process is gone.

    Attributes:
        resident_bytes: memory that the process has in RAM.
        cpu_s: processor seconds since the start of the process, in user and kernel mode.
    """

    resident_bytes: int
    cpu_s: float


def usage(pid: int) -> Usage:
    """The resources that a process uses now."""
    psutil = _psutil()
    return from_proc(pid) if psutil is None else from_psutil(psutil, pid)


@functools.lru_cache(maxsize=None)
def _psutil() -> Optional[Any]:
    # Imported only when it is needed, because an agent without sessions should not pay for its memory.
    try:
        return importlib.import_module("psutil")
    except ImportError:
        return None


def from_psutil(psutil: Any, pid: int) -> Usage:
    """The resources of a process, from psutil."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return Usage(int(process.memory_info().rss), float(times.user + times.system))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return Usage(0, 0.0)


def from_proc(pid: int) -> Usage:
    """The resources of a process, from /proc."""
    try:
        with open("/proc/%d/statm" % pid, encoding="ascii") as file:
            pages = int(file.read().split()[1])
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        user_s, kernel_s = int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S
        return Usage(pages * _PAGE_BYTES, user_s + kernel_s)
    except (OSError, IndexError):
        return Usage(0, 0.0)
