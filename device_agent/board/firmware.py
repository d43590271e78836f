"""Kernel and firmware of the machine, whose versions decide how fast the same program runs.

Sources: `/proc/sys/kernel/osrelease` and `version` (proc_sys_kernel(5)); the DMI table where there is a BIOS
or UEFI (Linux, Documentation/ABI/testing/sysfs-firmware-dmi-tables; a Jetson Orin has its UEFI there); the
device tree's node `chosen`, where U-Boot leaves `u-boot,version` and the boot loader of a Raspberry Pi 4 or 5
`bootloader/build-timestamp`, seconds since 1970 as a big-endian word of 32 bits (Raspberry Pi documentation,
"Raspberry Pi boot EEPROM").
"""

from __future__ import annotations

import os
import struct
from typing import Dict

_TEXTS = (
    ("kernel", "proc/sys/kernel/osrelease"),
    ("kernel build", "proc/sys/kernel/version"),
    ("firmware", "sys/class/dmi/id/bios_version"),
    ("firmware date", "sys/class/dmi/id/bios_date"),
    ("u-boot", "proc/device-tree/chosen/u-boot,version"),
)
_BOOT_LOADER = "proc/device-tree/chosen/bootloader/build-timestamp"
_MOST_BYTES = 256


def versions(root: str = "/") -> Dict[str, str]:
    """Versions by name; one that the machine does not show is left out.

    Args:
        root: prefix of all system paths.
    """
    found = {}
    for name, path in _TEXTS:
        text = _read(os.path.join(root, path)).decode("utf-8", "replace").strip("\0 \n")
        if text:
            found[name] = text
    stamp = _read(os.path.join(root, _BOOT_LOADER))
    if len(stamp) == 4:
        found["boot loader"] = str(struct.unpack(">I", stamp)[0])
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""
