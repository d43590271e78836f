"""The bounds of a board or core file: ranges of its numbers and forms of its texts, in one place.

A file may come from elsewhere. Beyond these bounds nothing is a processor, and arithmetic would overflow.
"""

from __future__ import annotations

import re

FILE_BYTES = 1 << 18
# The time that Python's reader takes grows with the square of a line's dotted names.
LINE_BYTES = 4096
TEXT_CHARACTERS = 200
LIST_ITEMS = 64
# Names of boards and cores, which are those of their files, and what LLVM calls things.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LLVM = re.compile(r"[+-]?[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
FORMS: dict[str, re.Pattern[str]] = {
    "name": NAME,
    "mcpu": _LLVM,
    "mattr": _LLVM,
    "mabi": re.compile(r"(?:[A-Za-z0-9]{1,16})?"),
    "gpu": re.compile(r"(?:[A-Za-z][A-Za-z0-9_]{0,99})?"),
    "family": re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,99})?"),
    "sensors": NAME,
    "dot_product": re.compile(r"(?:s8s8)?"),
}
RANGES: dict[str, tuple[float, float]] = {
    # of a core
    "vector_bits": (32, 1 << 16),
    "vector_registers": (1, 1024),
    "fma_per_cycle": (0.01, 1024),
    "fma_latency_cycles": (0.1, 1000),
    "issue_width": (0.1, 64),
    "loads_per_cycle": (0.01, 64),
    "look_ahead": (0.1, 1e5),
    # of a memory level
    "size_bytes": (64, 1 << 40),
    "bytes_per_cycle": (1e-3, 1e5),
    "latency_cycles": (0.1, 1e6),
    "ways": (1, 1 << 16),
    # of a board
    "cores": (1, 1024),
    "frequency_hz": (1e6, 1e11),
    "memory_bytes": (1 << 16, 1 << 50),
    "memory_bytes_per_s": (1e3, 1e14),
    "memory_latency_s": (1e-10, 1.0),
    "parallel_launch_s": (1e-9, 1.0),
    "cache_bytes": (64, 1 << 40),
}


def shown(value: object) -> str:
    """A value in a message: one line of visible characters, of a bounded length."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits has no text
        return "a number beyond all bounds"
    return text if len(text) <= 80 else text[:77] + "..."
