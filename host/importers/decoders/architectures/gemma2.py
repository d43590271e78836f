"""Gemma 2: soft-capping of attention and logits, and windows in every second layer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from host.importers.decoders.architectures.gemma import as_gemma, query_scalar
from host.importers.decoders.config import (
    MAX_POSITIONS,
    Config,
)
from host.importers.decoders.description import DecoderDescription, DecoderWeights, Layer
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

MODEL_TYPES = ("gemma2",)
_ATTENTION_CAP, _LOGIT_CAP, _SCALE, _WINDOW = 50.0, 30.0, 256.0, 4096
# Layers of the model of 27 billion weights, whose scale is not that of its heads; GGUF files do not have it.
_LARGEST = 46


def _gguf_fields(metadata: Config, names: Collection[str]) -> dict[str, Any]:
    return {
        "sliding_window": metadata.whole("gemma2.attention.sliding_window", 1, MAX_POSITIONS, _WINDOW),
        "attn_logit_softcapping": soft_cap(metadata, "gemma2.attn_logit_softcapping", _ATTENTION_CAP),
        "final_logit_softcapping": soft_cap(metadata, "gemma2.final_logit_softcapping", _LOGIT_CAP),
        "query_pre_attn_scalar": query_scalar(metadata, "gemma2", _LARGEST),
    }


GGUF = GgufForm(
    "gemma2",
    norm_offset=1.0,
    sandwich=True,
    keys=("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"),
    fields=_gguf_fields,
)


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    config.only("use_bidirectional_attention", False)
    sizes = read_sizes(config, head_size=256)
    rotary, positions = own_rotary(config, sizes)
    own = window(config) if config.has("sliding_window") else 0
    own = own if "sliding_window" in config.values else _WINDOW
    standard = [0 if number % 2 else own for number in range(sizes.layers)]
    windows = layer_windows(config, sizes.layers, standard)
    model = description(config, sizes, rotary, windows, positions=positions)
    scale = config.number("query_pre_attn_scalar", 1e-6, 1e6, _SCALE) ** -0.5
    cap = soft_cap(config, "attn_logit_softcapping", _ATTENTION_CAP)
    model = replace(
        as_gemma(config, sizes, model, "hidden_activation"),
        layers=tuple(Layer(one, rotary, scale, cap) for one in windows),
        logit_cap=soft_cap(config, "final_logit_softcapping", _LOGIT_CAP),
    )
    bias = config.truth("attention_bias", False)
    return model, weights(config, sizes, Names(bias, bias, sandwich=True, tied=True))


def soft_cap(config: Config, name: str, standard: float) -> float:
    """A field of soft-capping, 0 for none; `standard` where it is absent."""
    if name in config.values and not config.has(name):
        return 0.0
    return config.number(name, 1e-3, 1e6, standard) if standard or config.has(name) else 0.0
