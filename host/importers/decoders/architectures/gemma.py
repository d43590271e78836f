"""Gemma 1: norms with one plus the weight, scaled embeddings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from host.importers.decoders.config import (
    MAX_HEAD_SIZE,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_LAYERS,
    Config,
)
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


def query_scalar(metadata: Config, name: str, largest: int) -> int:
    """`query_pre_attn_scalar` of a GGUF file, which does not have it: queries are divided by its square root.

    Args:
        metadata: of the file.
        name: of the architecture in the file.
        largest: layers of the model of 27 billion weights, whose scale is not that of its heads.
    """
    layers = metadata.whole(f"{name}.block_count", 1, MAX_LAYERS)
    heads = metadata.whole(f"{name}.attention.head_count", 1, MAX_HEADS)
    hidden = metadata.whole(f"{name}.embedding_length", 1, MAX_HIDDEN)
    size = metadata.whole(f"{name}.attention.key_length", 1, MAX_HEAD_SIZE, max(hidden // heads, 1))
    return hidden // heads if layers == largest else size
