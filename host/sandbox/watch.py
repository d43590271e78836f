"""How much a process and those that it started use, and ending all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """The resources that a process and its descendants use.

    Attributes:
        memory_bytes: of their own memory; files that are mapped do not count.
        cpu_s: computing time since their start.
    """

    memory_bytes: int
    cpu_s: float


def usage(pid: int, proc: Path = _PROC) -> Usage:
    """What a process and its descendants use now; zeros where the system does not report it."""
    memory, ticks, waiting = 0, 0, [pid]
    while waiting:
        folder = proc / str(waiting.pop())
        try:
            for line in (folder / "status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    memory += int(line.split()[1]) << 10
            # After the name, which may hold anything: field 14 to 17 of proc(5).
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
            for task in (folder / "task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
    return Usage(memory, ticks / _TICKS)


def end_group(pid: int) -> None:
    """Kill a process that leads a group, and the group, which its members cannot leave."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def await_end(pid: int, seconds: float) -> None:
    """Wait for the end of a child, which stays to be waited for.

    A process closes its output a while before it has ended: killed then, it would seem to lack memory.
    """
    ends = time.monotonic() + seconds
    # There is none to wait for where this process was started with SIGCHLD ignored.
    with contextlib.suppress(ChildProcessError):
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > ends:
                return
            time.sleep(0.01)
