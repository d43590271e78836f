"""Gemma 3, text models: norms of each head, most layers with a window and a rotation of their own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from device_agent.contract.fields import Fields
from host.importers.decoders.architectures.gemma import as_gemma, query_scalar
from host.importers.decoders.architectures.gemma2 import soft_cap
from host.importers.decoders.config import (
    MAX_LAYERS,
    MAX_POSITIONS,
    Config,
)
from host.importers.decoders.description import DecoderDescription, DecoderWeights, Layer, Rotary
from host.importers.decoders.family import (
    Names,
    Sizes,
    description,
    layer_windows,
    read_sizes,
    weights,
    window,
)
from host.importers.decoders.gguf.form import GgufForm
from host.importers.decoders.gguf.metadata import rotation
from host.importers.decoders.rotary import read_rotary

MODEL_TYPES = ("gemma3_text",)
_SCALE, _PATTERN = 256.0, 6
_THETA, _LOCAL_THETA = 1e6, 1e4
# Layers of the model of 27 billion weights, whose scale is not that of its heads; GGUF files do not have it.
_LARGEST = 62


def _gguf_fields(metadata: Config, names: Collection[str]) -> dict[str, Any]:
    layers = metadata.whole("gemma3.block_count", 1, MAX_LAYERS)
    pattern = metadata.whole("gemma3.attention.sliding_window_pattern", 1, MAX_LAYERS, _PATTERN)
    kinds = ["sliding_attention" if (number + 1) % pattern else "full_attention" for number in range(layers)]
    local = metadata.number("gemma3.rope.freq_base_swa", 1.0, 1e12, _LOCAL_THETA)
    return {
        "sliding_window": metadata.whole("gemma3.attention.sliding_window", 1, MAX_POSITIONS),
        "layer_types": kinds,
        "rope_parameters": {
            "full_attention": rotation(metadata, GGUF, {}),
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        },
        "query_pre_attn_scalar": query_scalar(metadata, "gemma3", _LARGEST),
    }


GGUF = GgufForm(
    "gemma3",
    norm_offset=1.0,
    sandwich=True,
    keys=("attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"),
    fields=_gguf_fields,
)


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    config.only("use_bidirectional_attention", False)
    config.only("attn_logit_softcapping")
    sizes = read_sizes(config, head_size=256)
    pattern = config.whole("sliding_window_pattern", 1, MAX_LAYERS, _PATTERN)
    standard = [window(config) if (number + 1) % pattern else 0 for number in range(sizes.layers)]
    windows = layer_windows(config, sizes.layers, standard)
    full, local, positions = _rotaries(config, sizes)
    model = description(config, sizes, full, windows, positions=positions)
    scale = config.number("query_pre_attn_scalar", 1e-6, 1e6, _SCALE) ** -0.5
    model = replace(
        as_gemma(config, sizes, model, "hidden_activation"),
        layers=tuple(Layer(one, local if one else full, scale) for one in windows),
        logit_cap=soft_cap(config, "final_logit_softcapping", 0.0),
    )
    bias = config.truth("attention_bias", False)
    return model, weights(config, sizes, Names(bias, bias, head_norms=True, sandwich=True, tied=True))


def _rotaries(config: Config, sizes: Sizes) -> tuple[Rotary, Rotary, int]:
    """The rotations of layers without and with a window, and the positions that they serve."""
    given = _inner(config, "rope_parameters")
    for name in given.values:
        if name not in ("full_attention", "sliding_attention"):
            raise config.unsupported(f"rope_parameters of {name!r}")
    scaling = _inner(config, "rope_scaling").values
    full: dict[str, Any] = {**_inner(given, "full_attention").values, **scaling}
    local: dict[str, Any] = dict(_inner(given, "sliding_attention").values)
    if config.has("rope_theta"):
        full.setdefault("rope_theta", config.values["rope_theta"])
    if config.has("rope_local_base_freq"):
        local.setdefault("rope_theta", config.values["rope_local_base_freq"])
    found = [
        read_rotary(config, values, sizes.head_size, theta=theta)
        for values, theta in ((full, _THETA), (local, _LOCAL_THETA))
    ]
    return found[0][0], found[1][0], found[0][1]


def _inner(fields: Fields, name: str) -> Fields:
    """An object within another; one without fields where it is absent."""
    return fields.object(name, 64) if fields.has(name) else Fields({}, fields.error)
