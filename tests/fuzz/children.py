"""Children of a case that may not end by themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import time


def ended(pid: int, longest_s: float) -> int | None:
    """How a forked child ended, as `os.waitstatus_to_exitcode` says it.

    Args:
        pid: of a child that leads a process group of its own.
        longest_s: seconds after which the group is ended.

    Returns:
        The code; None where the child took too long.
    """
    until = time.monotonic() + longest_s
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None
