"""Uploads: files kept by the hash of their content, so that nothing is sent twice."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import socket
import time
from typing import List, Optional

from device_agent.wire import CHUNK_BYTES, AgentError, ClosedError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_HASH = re.compile(r"[0-9a-f]{64}$")


def full_disk(error: OSError, what: str) -> AgentError:
    """The error for a failed write: "device_full" where that is the reason."""
    if error.errno in _FULL:
        return AgentError(
            "device_full", "no space left on the device for %s; remove bundles or free some" % what
        )
    return AgentError("internal", "%s cannot be written: %s" % (what, error))


class Uploads:
    """A folder of files named by their SHA-256.

    What is installed from here shares its content with the upload and costs nothing twice.

    Args:
        folder: where they are kept.
        keep_bytes: total size above which those not used for longest are removed.
    """

    def __init__(self, folder: str, keep_bytes: int = 2 << 30) -> None:
        self._folder = folder
        self._keep_bytes = keep_bytes
        os.makedirs(folder, exist_ok=True)

    def path(self, digest: str) -> str:
        """Where a file with this hash lies or would lie.

        Raises:
            AgentError: this is no hash.
        """
        if not _HASH.match(digest):
            raise AgentError("bad_request", "%r is no SHA-256" % digest[:80])
        return os.path.join(self._folder, digest)

    def has(self, digest: str) -> bool:
        """Whether the file is here; if so it counts as used now."""
        path = self.path(digest)
        try:
            os.utime(path)
        except OSError:
            return False
        return True

    def receive(self, connection: socket.socket, digest: str, size: int) -> None:
        """Takes a file from a connection.

        Raises:
            AgentError: no space, or the content is not what the hash says. The whole blob has been read
                then, unless the connection broke.
            ClosedError: the connection broke.
        """
        target = self.path(digest)
        partial = os.path.join(self._folder, "%s.%s.part" % (digest, secrets.token_hex(4)))
        left = size
        failure = self._no_room(size)
        hasher = hashlib.sha256()
        buffer = bytearray(CHUNK_BYTES)
        try:
            # Unbuffered: a full disk shows at the write, and not again when the file is closed.
            with open(partial, "wb", buffering=0) as file:
                while left:
                    count = connection.recv_into(buffer, min(left, CHUNK_BYTES))
                    if count == 0:
                        raise ClosedError("upload of %s ended %d bytes early" % (digest, left))
                    left -= count
                    if failure is None:
                        failure = self._append(file, memoryview(buffer)[:count])
                        hasher.update(memoryview(buffer)[:count])
            if failure is None and hasher.hexdigest() != digest:
                failure = AgentError("bad_request", "upload of %s has another content" % digest)
            if failure is not None:
                raise failure
            os.replace(partial, target)
        except OSError as error:
            raise full_disk(error, "an upload of %d bytes" % size) from error
        finally:
            if os.path.exists(partial):
                os.unlink(partial)

    def _no_room(self, size: int) -> Optional[AgentError]:
        self.prune(size)
        free = shutil.disk_usage(self._folder).free
        if size <= free:
            return None
        text = "no space left on the device: %d bytes are sent, %d are free; remove bundles or free some"
        return AgentError("device_full", text % (size, free))

    @staticmethod
    def _append(file: io.FileIO, data: memoryview) -> Optional[AgentError]:
        try:
            while data:
                data = data[file.write(data) :]
        except OSError as error:
            return full_disk(error, "an upload")
        return None

    def prune(self, coming: int = 0) -> None:
        """Removes the files not used for longest until the rest and `coming` bytes keep the limit.

        Files that are in use under another name do not count.
        """
        entries = []
        for entry in os.scandir(self._folder):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # another connection's upload has just ended
            if entry.name.endswith(".part"):
                if time.time() - status.st_mtime > 3600:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
            elif status.st_nlink == 1:
                entries.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in entries) + coming
        for _, size, path in sorted(entries):
            if total <= self._keep_bytes:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size

    def names(self) -> List[str]:
        """Hashes of the files that are here."""
        return sorted(name for name in os.listdir(self._folder) if _HASH.match(name))


def place(source: str, target: str) -> None:
    """Gives a file a second name, or copies it where the file system cannot link.

    Raises:
        AgentError: no space.
    """
    try:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            shutil.copyfile(source, target)
    except OSError as error:
        raise full_disk(error, os.path.basename(target)) from error
