"""Folders and files that only this user can read. After a power cut, a file has its old or its new content.

Locks of the kernel (flock) show whether a process is alive, because they end with the process however it
ends. Process ids are reused after a reboot, and clocks jump.
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
    """Creates a folder that only this user can enter, or restricts an existing one.

    Raises:
        AgentError: another user owns the folder.
        OSError: the folder cannot be created.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    status = os.stat(path)
    if status.st_uid != os.geteuid():
        raise AgentError("denied", "%s belongs to another user; set EDGETLM_HOME to a folder of yours" % path)
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, 0o700)


def write_private(path: str, fields: Dict[str, Any]) -> None:
    """Writes a JSON file that only this user can read. After a power cut, it is the old or the new one."""
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
    """Makes the entries of a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_held(path: str) -> bool:
    """Whether a process holds a file's lock. Several processes may ask at once without being seen as holders.

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
    """Takes a file's lock if it is free; the value of the context says whether it was.

    Raises:
        FileNotFoundError: there is no such file and `create` is False.
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
    """Waits for a file's lock and holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
