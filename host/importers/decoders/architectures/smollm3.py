"""SmolLM 3: every fourth layer has no rotation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from host.importers.decoders.architectures import qwen2
from host.importers.decoders.config import MAX_LAYERS, Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.family import Names, description, layer_windows, read_sizes, weights, window
from host.importers.decoders.gguf.form import GgufForm
from host.importers.decoders.rotary import read_rotary, rope_parameters

MODEL_TYPES = ("smollm3",)
_THETA, _INTERVAL = 2e6, 4


def _gguf_fields(metadata: Config, names: Collection[str]) -> dict[str, Any]:
    # No field of the file has the number: llama.cpp knows it. transformers has a padding token of its own,
    # beyond a smaller vocabulary.
    return {"no_rope_layer_interval": _INTERVAL, "pad_token_id": None}


GGUF = GgufForm("smollm3", interleaved=True, fields=_gguf_fields)


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    sizes = read_sizes(config)
    rotary, positions = read_rotary(config, rope_parameters(config), sizes.head_size, theta=_THETA)
    rotated = _rotated(config, sizes.layers)
    model = description(config, sizes, rotary, _windows(config, rotated), positions=positions)
    layers = [
        layer if turns else replace(layer, rotary=None)
        for layer, turns in zip(model.layers, rotated, strict=True)
    ]
    bias = config.truth("attention_bias", False)
    own = Names(query_bias=bias, output_bias=bias, feed_bias=config.truth("mlp_bias", False), tied=True)
    return replace(model, layers=tuple(layers)), weights(config, sizes, own)


def _rotated(config: Config, layers: int) -> list[bool]:
    """Whether each layer has a rotation; the field that names them has a 0 for those without."""
    interval = config.whole("no_rope_layer_interval", 1, MAX_LAYERS, _INTERVAL)
    if not config.has("no_rope_layers"):
        return [bool((number + 1) % interval) for number in range(layers)]
    given = config.items("no_rope_layers", MAX_LAYERS)
    if len(given) < layers or any(one not in (0, 1) for one in given):
        raise config.wrong("no_rope_layers", f"a list of 0 and 1 for {layers} layers")
    return [bool(one) for one in given[:layers]]


def _windows(config: Config, rotated: list[bool]) -> tuple[int, ...]:
    """The window of each layer: with `use_sliding_window`, those without a rotation have one."""
    if not config.truth("use_sliding_window", False):
        return qwen2.windows(config, len(rotated))
    own = window(config) if config.has("sliding_window") else 0
    return layer_windows(config, len(rotated), [0 if turns else own for turns in rotated])
