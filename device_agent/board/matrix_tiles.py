"""The registers of matrices of x86 processors (AMX), which Linux lets a process use only after it has asked.

Their state is large, so that a kernel may not save it, and a container's filter may refuse the question. What
says that the processor has them (`/proc/cpuinfo`) is then no reason to compile for them.
"""

from __future__ import annotations

import ctypes
import os
from typing import List

# Linux's numbers: the system call arch_prctl of x86-64, its question, and the state of AMX's tiles
# (asm/unistd_64.h, asm/prctl.h, Documentation/arch/x86/xstate.rst).
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_FEATURES = "amx_"


def permitted(features: List[str]) -> List[str]:
    """The features of a processor without those that this process may not use.

    Args:
        features: Linux's names of them.
    """
    if not any(name.startswith(_FEATURES) for name in features) or may_use_tiles():
        return features
    return [name for name in features if not name.startswith(_FEATURES)]


def may_use_tiles() -> bool:
    """Whether Linux lets this process use the registers; asks for it, which a process may do again."""
    if os.uname().machine != "x86_64":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return bool(library.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, ctypes.c_ulong(_TILE_DATA)) == 0)
