"""Memory between pages that nobody may touch, filled with a pattern."""

from __future__ import annotations

import ctypes
import mmap
import os
from types import TracebackType

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value
_NO_ACCESS = 0


class Guarded:
    """A buffer of `size` bytes; an access to the page before it or after it ends the process.

    The pattern fills the buffer and what is left of its own pages, which `overwritten` looks at.

    Args:
        size: bytes, 0 included.
        pattern: value of every byte.
        at_end: whether the buffer ends at the page after it, or begins at the page before it.
        alignment: of its address; with `at_end`, up to that many bytes lie between the buffer and the page.

    Attributes:
        address: of the first byte.
        content: the buffer, as bytes.
        around: the bytes before and behind it up to the forbidden pages.

    Raises:
        OSError: there is no memory.
    """

    def __init__(self, size: int, pattern: int, at_end: bool, alignment: int = 1) -> None:
        room = max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
        self._mapped = room + 2 * mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        base = _libc.mmap(None, self._mapped, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if base == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._base: int | None = base
        for page in (base, base + self._mapped - mmap.PAGESIZE):
            if _libc.mprotect(page, mmap.PAGESIZE, _NO_ACCESS):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        first = (room - size) // alignment * alignment if at_end else 0
        inside = base + mmap.PAGESIZE
        self.address = inside + first
        own = np.frombuffer((ctypes.c_uint8 * room).from_address(inside), np.uint8)
        own[:] = pattern
        self.content = own[first : first + size]
        self.around = (own[:first], own[first + size :])
        self._pattern = pattern

    def overwritten(self) -> str:
        """Where bytes beside the buffer have changed: "before", "behind" or ""."""
        for part, where in zip(self.around, ("before", "behind"), strict=True):
            if (part != self._pattern).any():
                return where
        return ""

    def close(self) -> None:
        """Give the memory back; nothing may use it any more."""
        if self._base is not None:
            _libc.munmap(self._base, self._mapped)
            self._base = None

    def __enter__(self) -> Guarded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
