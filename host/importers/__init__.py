"""Model files to `ImportedModel`: a relax module, a signature, and golden outputs of the original runtime."""

from __future__ import annotations

from host.importers.dispatch import from_module, load_here
from host.importers.worker.parent import load, start_ahead

__all__ = ["from_module", "load", "load_here", "start_ahead"]
