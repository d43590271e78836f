"""Gemma 2: soft-capping of attention and logits, and windows in every second layer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from host.importers.decoders.architectures.gemma import as_gemma
from host.importers.decoders.config import Config
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

MODEL_TYPES = ("gemma2",)
_ATTENTION_CAP, _LOGIT_CAP, _SCALE = 50.0, 30.0, 256.0


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    config.only("use_bidirectional_attention", False)
    sizes = read_sizes(config, head_size=256)
    rotary, positions = own_rotary(config, sizes)
    own = window(config) if config.has("sliding_window") else 0
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
