"""Qwen 1.5, 2 and 2.5: biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Collection

from host.importers.decoders.config import MAX_LAYERS, Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.family import (
    Names,
    description,
    layer_windows,
    own_rotary,
    read_sizes,
    weights,
    window,
)
from host.importers.decoders.gguf.form import GgufForm

MODEL_TYPES = ("qwen2",)
GGUF = GgufForm("qwen2")


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    sizes = read_sizes(config)
    rotary, positions = own_rotary(config, sizes)
    model = description(config, sizes, rotary, windows(config, sizes.layers), positions=positions)
    return model, weights(config, sizes, Names(query_bias=True))


def windows(config: Config, layers: int) -> tuple[int, ...]:
    """The window of each layer: with `use_sliding_window`, those from `max_window_layers` on have one."""
    if not config.truth("use_sliding_window", False):
        # `sliding_window` means nothing then, and a layer that would have one is a contradiction.
        if any(layer_windows(config, layers)):
            raise config.unsupported("layer type 'sliding_attention' without use_sliding_window")
        return (0,) * layers
    first = config.whole("max_window_layers", 0, MAX_LAYERS, 28)
    own = window(config) if config.has("sliding_window") else 0
    return layer_windows(config, layers, [own if number >= first else 0 for number in range(layers)])
