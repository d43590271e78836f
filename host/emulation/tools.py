"""Programs of the system that emulation needs, and what to type where one is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

from host.errors import UserError

# Debian's package by program.
_PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-riscv64-static": "qemu-user-static",
    "qemu-system-aarch64": "qemu-system-arm",
    "qemu-system-riscv64": "qemu-system-misc",
    "ssh-keygen": "openssh-client",
}
# Administrators' programs are not on every user's path.
_ALSO = ("/usr/sbin", "/sbin")


def tool(name: str) -> Path:
    """The path of a program.

    Raises:
        UserError: it is not installed; the message says what to type.
    """
    found = shutil.which(name) or next((p for d in _ALSO if (p := shutil.which(name, path=d))), None)
    if found is None:
        raise UserError(f"emulation needs {name}: type sudo apt-get install {_PACKAGES[name]}")
    return Path(found)
