"""Architectures of decoders: one module each, found by listing this folder.

A module has `MODEL_TYPES`, the values of `model_type` in config.json that it reads, and
`describe(config, names)`, which gives the description and where the weights lie. One that GGUF files are read
of has `GGUF` too, how they write the first of the `MODEL_TYPES`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

from device_agent.contract.text import printable
from host.errors import ImportFailed
from host.importers.decoders.config import Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.gguf.form import GgufForm

Describe = Callable[[Config, Collection[str]], tuple[DecoderDescription, DecoderWeights]]


@cache
def _modules() -> tuple[Any, ...]:
    entries = pkgutil.iter_modules(__path__, f"{__name__}.")
    return tuple(importlib.import_module(entry.name) for entry in entries)


@cache
def _readers() -> dict[str, Describe]:
    found: dict[str, Describe] = {}
    for module in _modules():
        found.update(dict.fromkeys(module.MODEL_TYPES, module.describe))
    return found


def gguf_forms() -> dict[str, GgufForm]:
    """How GGUF files write architectures, by `model_type`."""
    return {module.MODEL_TYPES[0]: module.GGUF for module in _modules() if hasattr(module, "GGUF")}


def known_architectures() -> tuple[str, ...]:
    """Values of `model_type` that are read."""
    return tuple(sorted(_readers()))


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """The description of a model and of its weights.

    Args:
        config: its config.json.
        names: of its weights.

    Raises:
        ImportFailed: the architecture is not known, or asks for something that is not implemented.
        ModelFileError: a field is missing or out of range.
    """
    kind = config.text("model_type", 100)
    config.only("quantization_config")
    if kind not in _readers():
        raise ImportFailed(
            f"{config.where}: architecture {printable(kind, 60)!r} is not known: "
            f"give a model of one of {', '.join(known_architectures())}",
            kind,
        )
    return _readers()[kind](config, names)
