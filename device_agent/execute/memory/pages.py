"""Memory in huge pages, for what a language model reads whole for every token: its weights, keys and values.

A core finds the place of a page of 4 KiB in tables again and again, twice over in a virtual machine, and what
it fetches ahead ends with the page. Pages of 2 MiB (x86, and ARM with pages of 4 KiB) have neither limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any, Tuple

from device_agent.execute.memory.free_memory import MEMINFO, free_bytes

_SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"
_HUGE_BYTES = 2 << 20
# A copy of the weights beside their pages in the page cache must leave memory for others.
_ROOM = 2


def has_huge_pages(setting: str = _SETTING) -> bool:
    """Whether the system gives huge pages to memory that asks for them."""
    try:
        with open(setting, encoding="ascii") as file:
            return "[never]" not in file.read() and hasattr(mmap, "MADV_HUGEPAGE")
    except (OSError, ValueError):
        return False


def has_room(size: int, meminfo: str = MEMINFO) -> bool:
    """Whether this process can get memory for a copy of some bytes, and as much again for others."""
    free = free_bytes(meminfo)
    return free is not None and free >= _ROOM * size


def zeroed(size: int) -> Tuple[Any, int]:
    """Memory of this process alone that is zero, in huge pages where the system has them.

    Args:
        size: in bytes.

    Returns:
        What keeps the memory, a buffer that can be written and begins at the address; and the address, a
        multiple of 2 MiB.

    Raises:
        OSError, ValueError, OverflowError: there is no such memory.
    """
    memory = mmap.mmap(-1, size + _HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if has_huge_pages():
        # A kernel may refuse it: the memory is as good, and slower.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    offset = -address % _HUGE_BYTES
    return (ctypes.c_char * max(size, 1)).from_buffer(memory, offset), address + offset
