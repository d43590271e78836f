"""Gemma 1: norms with one plus the weight, scaled embeddings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from host.importers.decoders.config import Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights, NormKind
from host.importers.decoders.family import Names, Sizes, description, own_rotary, read_sizes, weights
from host.importers.decoders.gguf.form import GgufForm

MODEL_TYPES = ("gemma",)
GGUF = GgufForm("gemma", norm_offset=1.0)


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    config.only("use_bidirectional_attention", False)
    sizes = read_sizes(config, head_size=256)
    rotary, positions = own_rotary(config, sizes)
    bias = config.truth("attention_bias", False)
    model = description(config, sizes, rotary, (0,) * sizes.layers, positions=positions)
    own = Names(query_bias=bias, output_bias=bias, tied=True)
    return as_gemma(config, sizes, model, "hidden_act"), weights(config, sizes, own)


def as_gemma(config: Config, sizes: Sizes, model: DecoderDescription, activation: str) -> DecoderDescription:
    """The description with what all of Gemma have.

    Args:
        config: of the model.
        sizes: of the model.
        model: a description of the family.
        activation: name of the field that has it.
    """
    kind = config.activation(activation, "gelu_pytorch_tanh")
    return replace(
        model,
        norm=NormKind("rms", model.norm.epsilon, 1.0),
        # The first releases say "gelu" and mean the form with tanh.
        activation="gelu_tanh" if kind == "gelu" and activation == "hidden_act" else kind,
        embedding_scale=sizes.hidden**0.5,
    )
