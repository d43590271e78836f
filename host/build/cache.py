"""Content-addressed store of compiled kernels, shared by every process of one user."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

from host.places import cache_root

# A digest in front of the object shows whether an entry is whole: a full disk or a crash cuts it short.
_DIGEST_BYTES = hashlib.sha256().digest_size
_SUFFIX = ".kernel"
DEFAULT_LIMIT_BYTES = 1 << 30


class KernelCache:
    """Objects by key. Writes are atomic, damaged entries count as missing, the oldest are pruned.

    Args:
        folder: where entries lie; `cache_root()/kernels` if None.
        limit_bytes: size above which least recently used entries are removed.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = cache_root() / "kernels" if folder is None else folder
        self.limit_bytes = limit_bytes

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / (key + _SUFFIX)

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`, or None if there is none or it is damaged."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        digest, content = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # marks it as used, for prune()
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an object. A cache that cannot be written (full disk, read-only home) stays as it is."""
        path = self._path(key)
        temporary: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            temporary = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            temporary.replace(path)
        except OSError:
            # Only speed is lost: the caller holds the object already.
            if temporary is not None:
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def prune(self) -> int:
        """Remove least recently used entries until the limit holds, and leftovers of killed writers.

        Returns:
            Number of files removed.
        """
        removed = 0
        entries: list[tuple[float, int, Path]] = []
        hour_ago = time.time() - 3600
        for path in self.folder.glob("*/*"):
            try:
                status = path.stat()
                if path.suffix == _SUFFIX:
                    entries.append((status.st_mtime, status.st_size, path))
                elif status.st_mtime < hour_ago:
                    path.unlink()
                    removed += 1
            except OSError:
                continue  # another process removed it first
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
            total -= size
        return removed
