"""A board whose user has a systemd of his own: the real one, in namespaces where it sees nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

from tests.integration.ssh.sshd import Sshd

# Arguments: a new control group, XDG_RUNTIME_DIR, HOME, and what to run beside systemd. A manager moves every
# process that it finds in its root group, so that must be a group of its own.
_SPACE = """
mkdir "$1"
echo $$ > "$1/cgroup.procs"
shift
exec unshare --cgroup --mount --pid --fork --kill-child sh -ec '
    mount -t proc proc /proc
    mkdir -p /run/systemd
    mount -t tmpfs none /run/systemd
    mkdir /run/systemd/system
    mount -t cgroup2 none /sys/fs/cgroup
    env -i PATH="$PATH" XDG_RUNTIME_DIR="$1" HOME="$2" /lib/systemd/systemd --user --log-target=console &
    shift 2
    exec "$@"
' space "$@"
"""
_STOP_S = 60.0


class SystemdBoard(Sshd):
    """An SSH server that a user's systemd runs beside, as the same user.

    All processes are of the server's namespaces: their ids on the board are not those that tests see.
    """

    def under(self) -> list[str]:
        """What the server is started by; needs root."""
        return ["sh", "-ec", _SPACE, "space", str(self._group), str(self.folder), str(self.home)]

    @property
    def _group(self) -> Path:
        mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
        root = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
        return Path(root) / f"edgetlm-{self.port}"

    def stop(self) -> None:
        """End everything in it, and remove its control group."""
        if self._process is not None:
            first = psutil.Process(self._process.pid)
            inside = first.children(recursive=True)
            first.send_signal(signal.SIGKILL)
            self._process.wait(_STOP_S)
            self._process = None
            psutil.wait_procs(inside, _STOP_S)
        until = time.monotonic() + _STOP_S
        while self._group.is_dir() and time.monotonic() < until:
            for folder in sorted(self._group.rglob("*"), reverse=True):
                if folder.is_dir():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
            with contextlib.suppress(OSError):
                self._group.rmdir()
        assert not self._group.exists()


def possible() -> bool:
    """Whether there can be such a board here: by root, with control groups of version 2."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return os.geteuid() == 0 and any(fields[2] == "cgroup2" and "rw" in fields[3] for fields in mounts)
