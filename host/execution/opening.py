"""Start or join an engine by its name."""

from __future__ import annotations

from collections.abc import Sequence

from host.execution.engine import Engine
from host.execution.local import LocalEngine
from host.options.engine import LOCAL, check_engine, head_of


def open_engine(name: str, boards: Sequence[str] = ()) -> Engine:
    """Start or join an engine.

    Args:
        name: "local", "ray" for hosts of this machine alone, or "ray://HOST:PORT" of a cluster's head.
        boards: that an engine of this machine alone reaches.

    Raises:
        UserError: there is no such engine, or its package is not installed.
        EdgeError: it does not answer.
    """
    check_engine(name)
    if name == LOCAL:
        return LocalEngine()
    from host.execution.ray_engine import RayEngine

    return RayEngine(head_of(name), boards)
