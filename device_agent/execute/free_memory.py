"""Refuses a language model that this machine has no memory for, before anything of it is loaded.

The native executor does the same (`device_agent/native/contract/free_memory.cc`).
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional

from device_agent.contract.manifest import PARAMETERS
from device_agent.store.opened_bundle import BundleError
from device_agent.wire.frames import tensor_bytes

MEMINFO = "/proc/meminfo"
_MIB = 1 << 20


def require_free(fields: Mapping[str, Any], meminfo: str = MEMINFO) -> None:
    """Asks the system for what it can give without swapping.

    Args:
        fields: of a checked manifest.
        meminfo: file with the system's memory, see proc(5); nothing is refused where it cannot be read.

    Raises:
        BundleError: the weights and the state of a language model take more.
    """
    if not fields.get("decoder"):
        return
    needed, free = needed_bytes(fields), free_bytes(meminfo)
    if free is not None and needed > free:
        raise BundleError(
            "its weights and its state take %.1f MiB, this machine has %.1f MiB free: close other programs, "
            "or deploy it with --quantize int4, a smaller --context or fewer --sequences"
            % (needed / _MIB, free / _MIB)
        )


def needed_bytes(fields: Mapping[str, Any]) -> int:
    """Bytes of the weights, and of the state of all texts."""
    weights = int(fields["files"].get(PARAMETERS, {}).get("size", 0))
    texts = int((fields.get("decoder") or {}).get("sequences", 1))
    return weights + texts * sum(tensor_bytes(one["shape"], one["dtype"]) for one in fields.get("state", ()))


def free_bytes(meminfo: str) -> Optional[int]:
    """Bytes that programs can get without swapping; None where the system does not say."""
    try:
        with open(meminfo) as file:
            found = re.search(r"^MemAvailable:\s*(\d{1,15}) kB$", file.read(65536), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return None if found is None else 1024 * int(found.group(1))
