"""Refuses a language model that this machine has no memory for, before anything of it is loaded.

The native executor does the same (`device_agent/native/contract/free_memory.cc`).
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterator, Mapping, Optional

from device_agent.contract.manifest import PARAMETERS
from device_agent.store.opened_bundle import BundleError
from device_agent.wire.frames import tensor_bytes

MEMINFO, GROUPS, OWN_GROUPS = "/proc/meminfo", "/sys/fs/cgroup", "/proc/self/cgroup"
# Of a control group: its limit, what it uses, and the name in memory.stat of pages that can be given back.
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_NUMBER = re.compile(r"\d{1,19}$")
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


def free_bytes(meminfo: str = MEMINFO, groups: str = GROUPS, own: str = OWN_GROUPS) -> Optional[int]:
    """Bytes that this process can get without swapping; None where the system does not say.

    A container's limit counts as well as the machine's memory: the system ends the process that passes it.

    Args:
        meminfo: see proc(5).
        groups: where the control groups are mounted, of version 2 or 1.
        own: file with the groups of this process, see cgroups(7).
    """
    found = re.search(r"^MemAvailable:\s*(\d{1,15}) kB$", _text(meminfo), re.MULTILINE)
    if found is None:
        return None
    return min([1024 * int(found.group(1)), *_left_to_groups(groups, own)])


def _left_to_groups(groups: str, own: str) -> Iterator[int]:
    """What the limits of this process's group and of those around it leave."""
    for line in _text(own).splitlines():
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if number == "0" and not kinds:
            root, names = groups, _VERSION_2
        elif "memory" in kinds.split(","):
            root, names = os.path.join(groups, "memory"), _VERSION_1
        else:
            continue
        parts = [part for part in path.split("/") if part]
        # In a container the group itself may be what is mounted: then only the outermost folder is there.
        for count in range(0 if ".." in path else len(parts), -1, -1):
            left = _left(os.path.join(root, *parts[:count]), *names)
            if left is not None:
                yield left


def _left(folder: str, limit: str, used: str, idle: str) -> Optional[int]:
    """What the limit of one group leaves, pages of idle files included; None where it has none."""
    most, now = (_text(os.path.join(folder, name)).strip() for name in (limit, used))
    if not (_NUMBER.match(most) and _NUMBER.match(now)):
        return None
    pages = re.search(r"^%s (\d{1,19})$" % idle, _text(os.path.join(folder, "memory.stat")), re.MULTILINE)
    return max(int(most) - int(now) + (int(pages.group(1)) if pages else 0), 0)


def _text(path: str) -> str:
    """A small file of the system's; empty where it cannot be read."""
    try:
        with open(path) as file:
            return file.read(65536)
    except (OSError, ValueError):
        return ""
