"""What a shell completes: names of devices, targets, kernels and bundles.

What cannot be read is left out: a shell has no place for a message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer

from host.errors import EdgeError


def devices(incomplete: str) -> list[str]:
    """Names and tags that `--device` takes; after a comma those of the next one."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _devices() if name.startswith(last)]


def registered_devices(incomplete: str) -> list[str]:
    """Names of the devices that the user added."""
    return [
        name for name in _devices() if name.startswith(incomplete) and name != "local" and ":" not in name
    ]


def targets(incomplete: str) -> list[str]:
    """Names that `--target` takes."""
    from targets import declared

    return [name for name in ("local", *declared()) if name.startswith(incomplete)]


def bundles(incomplete: str) -> list[str]:
    """Bundles of deployments from the working folder."""
    found = sorted(str(path.parent) for path in Path("edgetlm-out").glob("*/bundle/manifest.json"))
    return [path for path in found if path.startswith(incomplete)]


def installed_models(incomplete: str) -> list[str]:
    """Names of the models that this machine has installed."""
    found: set[str] = set()
    with contextlib.suppress(EdgeError, OSError):
        from sdk import api

        with api.connect("local") as board:
            found = {one["name"] for one in board.bundles()}
    return sorted(name for name in found if name.startswith(incomplete))


def kernels(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the kernels of the bundle that stands before."""
    path = Path(context.params.get("bundle") or "")
    names: list[str] = []
    with contextlib.suppress(EdgeError, OSError):
        from host.bundle import read_manifest

        if path.is_dir():
            names = [kernel.name for kernel in read_manifest(path).kernels]
    return [name for name in names if incomplete in name]


def _devices() -> Iterator[str]:
    yield "local"
    with contextlib.suppress(EdgeError, OSError):
        from host.devices import Registry

        entries = Registry().entries()
        yield from entries
        yield from sorted({f"tag:{tag}" for entry in entries.values() for tag in entry.tags})
