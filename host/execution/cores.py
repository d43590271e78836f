"""Which cores of a host are for its boards' measurements, and which are for builds.

Ray counts processors and pins nothing: without this, a build runs on the core from which a board is timed.
The division follows from the cores that a process may use, so that all processes of a host make the same one
without speaking to each other.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# Cores that a host keeps for its boards: the connections to all of them need less than one.
BOARD_CORES = "EDGETLM_BOARD_CORES"


def usable_cores() -> int:
    """Cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def divided(cores: frozenset[int], kept: int) -> tuple[frozenset[int], frozenset[int]]:
    """The cores for builds and those for boards: disjoint, unless there is a single one.

    Args:
        cores: that there are.
        kept: for boards, at most all but one.
    """
    if len(cores) < 2:
        return cores, cores
    ordered = sorted(cores)
    count = max(1, min(kept, len(ordered) - 1))
    return frozenset(ordered[:-count]), frozenset(ordered[-count:])


def pin(to_boards: bool) -> frozenset[int]:
    """Keep this process, and those that it starts, to the cores for boards, or to those for builds.

    What there is to divide is what the process above may use, which starts all those that do jobs: one that
    did another kind of job before is pinned already.

    Returns:
        The cores; none where the system pins no process.
    """
    if not hasattr(os, "sched_setaffinity"):
        return frozenset()
    try:
        kept = int(os.environ.get(BOARD_CORES, "1"))
    except ValueError:
        kept = 1
    cores = divided(frozenset(os.sched_getaffinity(os.getppid())), kept)[to_boards]
    for thread in Path("/proc/self/task").iterdir():
        # One that ended meanwhile needs none.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)
    return cores
