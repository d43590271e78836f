"""Hosts of a cluster have the command's version: programs of another one are no programs of its rules."""

from __future__ import annotations

import functools
import socket
from importlib.metadata import PackageNotFoundError, version

from device_agent.contract.text import printable
from host.errors import UserError

# What decides which program comes out of a candidate.
_PACKAGES = ("edgetlm", "apache-tvm")


@functools.cache
def version_here() -> str:
    """The versions of this process's packages, such as "edgetlm 0.1.0, apache-tvm 0.27.0"."""
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def check_version(wanted: str) -> None:
    """Refuse work of a command that has other versions than this process.

    Raises:
        UserError: says which host has what.
    """
    if wanted != version_here():
        raise UserError(
            f"the host {printable(socket.gethostname(), 80)} of the cluster has {version_here()}, and this "
            f"command {printable(wanted, 200)}: install the same there, and start it again with sdk cluster "
            "down and up"
        )
