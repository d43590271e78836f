"""Mistral 7B and its successors: one window for all layers, or none."""

from __future__ import annotations

from collections.abc import Collection

from host.importers.decoders.config import Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.family import Names, description, own_rotary, read_sizes, weights, window

MODEL_TYPES = ("mistral",)
# Of a config that does not name it; a null means none.
_WINDOW = 4096


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    config.only("layer_types")
    sizes = read_sizes(config)
    rotary, positions = own_rotary(config, sizes)
    own = window(config) if config.has("sliding_window") else 0
    own = own if "sliding_window" in config.values else _WINDOW
    model = description(config, sizes, rotary, (own,) * sizes.layers, positions=positions)
    return model, weights(config, sizes, Names())
