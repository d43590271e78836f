"""Folders and files that only this user can read; after a power cut a file is the old one or the new one.

Whether a process lives is asked of the kernel by locks (flock), which end with their holder however that
ends: process ids are used again after a reboot, and clocks jump.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
from typing import Any, Dict, Iterator

from device_agent.errors import AgentError


def private_folder(path: str) -> None:
    """Makes a folder that only this user can enter, or makes it so.

    Raises:
        AgentError: another user owns it.
        OSError: it cannot be made.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    status = os.stat(path)
    if status.st_uid != os.geteuid():
        raise AgentError("denied", "%s belongs to another user; set EDGETLM_HOME to a folder of yours" % path)
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, 0o700)


def write_private(path: str, fields: Dict[str, Any]) -> None:
    """Writes a JSON file that only this user can read: after a power cut it is the old one or the new one."""
    temporary = "%s.%s" % (path, secrets.token_hex(4))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(fields, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Has a folder's entries outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_held(path: str) -> bool:
    """Whether somebody holds a file's lock; several may ask at once and are not taken for a holder.

    Raises:
        FileNotFoundError: there is no such file.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def try_lock(path: str, create: bool = True) -> Iterator[bool]:
    """Holds a file's lock if it is free, and says whether it was.

    Raises:
        FileNotFoundError: there is no such file and none is to be made.
    """
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Holds a file's lock, waiting for it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
