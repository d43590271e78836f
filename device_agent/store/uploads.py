"""Uploaded files, stored by the hash of their content, so that nothing is sent twice."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import re
import secrets
import shutil
import socket
import time
from typing import Iterator, List, Optional, Tuple

from device_agent.contract.text import printable
from device_agent.errors import AgentError, ClosedError
from device_agent.store.private_files import private_folder, try_lock
from device_agent.wire.frames import CHUNK_BYTES

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_HASH = re.compile(r"[0-9a-f]{64}")


def full_disk(error: OSError, what: str) -> AgentError:
    """The error for a failed write: "device_full" if the disk is full."""
    if error.errno in _FULL:
        return AgentError(
            "device_full", "no space left on the device for %s; remove bundles or free some" % what
        )
    return AgentError("internal", "%s cannot be written: %s" % (what, error))


def check_file_name(name: str) -> str:
    """Returns the name if it is a valid name of a file in a folder.

    Raises:
        AgentError: the name leads to another folder, or cannot be printed.
    """
    if name in ("", ".", "..") or "/" in name or not name.isprintable() or len(os.fsencode(name)) > 255:
        raise AgentError("bad_request", "%s is no file name" % (printable(name, 80) or "an empty text"))
    return name


class Uploads:
    """A folder of files that are named by their SHA-256.

    An installed file shares its content with the upload, so that the content takes its space only once.

    Args:
        folder: where the files are stored.
        keep_bytes: total size above which the least recently used files are removed.
    """

    def __init__(self, folder: str, keep_bytes: int = 2 << 30) -> None:
        self._folder = folder
        self._keep_bytes = keep_bytes
        private_folder(folder)
        self._latest_ns = max((_mtime_ns(entry) for entry in os.scandir(folder)), default=0)
        self._sweep()

    def _sweep(self) -> None:
        """Removes half-received files of killed agents. Files that are being received are locked and stay."""
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            if name.endswith(".part"):
                with contextlib.suppress(FileNotFoundError), try_lock(path, create=False) as free:
                    if free:
                        os.unlink(path)

    def path(self, digest: str) -> str:
        """The path of the file with this hash, whether the file exists or not.

        Raises:
            AgentError: `digest` is not a hash.
        """
        if not _HASH.fullmatch(digest):
            raise AgentError("bad_request", "%r is no SHA-256" % printable(digest, 80))
        return os.path.join(self._folder, digest)

    def has(self, digest: str) -> bool:
        """Whether the file is here. If it is, it counts as used now."""
        try:
            self._used(self.path(digest))
        except OSError:
            return False
        return True

    def receive(self, connection: socket.socket, digest: str, size: int) -> None:
        """Receives a file from a connection.

        Raises:
            AgentError: there is no space, or the content does not match the hash. The whole blob has been
                read then, unless the connection broke.
            ClosedError: the connection broke.
        """
        incoming = _Incoming(connection, size)
        try:
            target = self.path(digest)
            failure = self._no_room(size)
            if failure is not None:
                raise failure
            with _part(os.path.join(self._folder, digest)) as (partial, file):
                hasher = hashlib.sha256()
                for data in incoming:
                    hasher.update(data)
                    while data:
                        data = data[file.write(data) :]
                if hasher.hexdigest() != digest:
                    raise AgentError("bad_request", "upload of %s has another content" % digest)
                # The content must be on disk before the name exists, because `has` only looks at the name.
                os.fsync(file.fileno())
                os.replace(partial, target)
                self._used(target)
        except OSError as error:
            incoming.drain()
            raise full_disk(error, "an upload of %d bytes" % size) from error
        except AgentError:
            incoming.drain()
            raise

    def _used(self, path: str) -> None:
        # The times only give the order of use, so that the newest file stays newest if the clock jumps back.
        self._latest_ns = max(self._latest_ns + 1, time.time_ns())
        os.utime(path, ns=(self._latest_ns, self._latest_ns))

    def _no_room(self, size: int) -> Optional[AgentError]:
        self.prune(size)
        free = shutil.disk_usage(self._folder).free
        if size <= free:
            return None
        text = "no space left on the device: %d bytes are sent, %d are free; remove bundles or free some"
        return AgentError("device_full", text % (size, free))

    def prune(self, coming: int = 0) -> None:
        """Removes the least recently used files until the rest and `coming` bytes are within the limit.

        Files that are also in use under another name do not count.
        """
        entries = []
        for entry in os.scandir(self._folder):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # another connection's upload has just ended
            if entry.name.endswith(".part"):
                continue
            if status.st_nlink == 1:
                entries.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in entries) + coming
        for _, size, path in sorted(entries):
            if total <= self._keep_bytes:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size

    def names(self) -> List[str]:
        """The hashes of the stored files."""
        return sorted(name for name in os.listdir(self._folder) if _HASH.fullmatch(name))


class _Incoming:
    """The blob of a request in pieces, which are all read into the same buffer."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._connection = connection
        self._size = self._left = size

    def __iter__(self) -> Iterator[memoryview]:
        buffer = memoryview(bytearray(min(CHUNK_BYTES, max(1, self._left))))
        while self._left:
            try:
                count = self._connection.recv_into(buffer, min(self._left, CHUNK_BYTES))
            except OSError as error:
                raise self._broken() from error
            if count == 0:
                raise self._broken()
            self._left -= count
            yield buffer[:count]

    def drain(self) -> None:
        """Reads the rest, so that the next request starts at the right place."""
        for _ in self:
            pass

    def _broken(self) -> ClosedError:
        return ClosedError("upload of %d bytes ended %d bytes early" % (self._size, self._left))


@contextlib.contextmanager
def _part(stem: str) -> Iterator[Tuple[str, io.FileIO]]:
    """A new file, which is locked while it is written, and removed at the end unless it was renamed."""
    while True:
        path = "%s.%s.part" % (stem, secrets.token_hex(4))
        # Unbuffered, so that a full disk is reported by the write and not again when the file is closed.
        file = io.FileIO(path, "xb")
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            break
        file.close()  # removed as left behind, between its creation and its lock
    try:
        with file:
            yield path, file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _mtime_ns(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def place(source: str, target: str) -> None:
    """Links a file under a second name, or copies it if the file system cannot link it.

    Raises:
        AgentError: there is no space.
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
