"""Model files to `ImportedModel`: a relax module, a signature, and golden outputs of the original runtime."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from host.importers.worker.ahead import start_ahead

if TYPE_CHECKING:
    from host.importers.dispatch import from_module, load_here
    from host.importers.worker.parent import load

__all__ = ["from_module", "load", "load_here", "start_ahead"]

# Where the others are. With them comes NumPy, before which a worker is started.
_PLACES = {
    "from_module": "host.importers.dispatch",
    "load": "host.importers.worker.parent",
    "load_here": "host.importers.dispatch",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'host.importers' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
