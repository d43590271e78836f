"""Debian's mirror, which root file systems of emulated boards are made from."""

from __future__ import annotations

import pytest

from host.emulation.rootfs import MIRROR_IN_FLUX


def skip_while_in_flux(said: str) -> None:
    """Skip the test if the mirror contradicts itself.

    Args:
        said: an error, or what a command wrote to stderr; a line of it says so. Nothing else skips.
    """
    if any(line.removeprefix("error: ").startswith(MIRROR_IN_FLUX) for line in said.splitlines()):
        pytest.skip(f"{MIRROR_IN_FLUX}: nothing can be made from it")
