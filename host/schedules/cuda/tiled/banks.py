"""How the threads of a warp meet in the banks of shared memory.

There are 32 banks of 4 bytes. Threads that want different words of one bank at once are served one after the
other; 8 bytes are served by half warps, 16 bytes by quarters (CUDA C++ Programming Guide, "Shared Memory").
"""

from __future__ import annotations

from functools import lru_cache

# Bytes that all banks serve at once, of one bank, and threads of a warp.
ALL_BANKS, WORD = 128, 4
_WARP = 32


def bank_passes(words: set[int], banks: int) -> int:
    """Passes that serve a set of words: the most that fall into one bank."""
    counts = [0] * banks
    for word in words:
        counts[word % banks] += 1
    return max(counts, default=0)


@lru_cache(maxsize=4096)
def apart(starts: tuple[int, ...], size: int) -> bool:
    """Whether no accesses that are served together meet in a bank.

    Args:
        starts: bytes at which the threads' accesses begin, by thread, aligned to `size`.
        size: bytes of each: a power of two up to 16.
    """
    unit = max(WORD, size)
    served = ALL_BANKS // unit
    for first in range(0, len(starts), _WARP):
        warp = starts[first : first + _WARP]
        for begin in range(0, len(warp), served):
            units = {start // unit for start in warp[begin : begin + served]}
            if len({number % served for number in units}) < len(units):
                return False
    return True
