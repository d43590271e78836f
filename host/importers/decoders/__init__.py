"""Language models out of transformers folders (config.json, *.safetensors) to `ImportedModel`."""

from __future__ import annotations

from host.importers.decoders.importer import import_decoder

__all__ = ["import_decoder"]
