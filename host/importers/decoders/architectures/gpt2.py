"""GPT-2: layer norms, learned positions, matrices transposed (Conv1D)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from host.importers.decoders.config import (
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_INTERMEDIATE,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCABULARY,
    Config,
)
from host.importers.decoders.description import (
    HEAD,
    DecoderDescription,
    DecoderWeights,
    Layer,
    LayerWeights,
    Matrix,
    NormKind,
    NormWeights,
    Product,
    Vector,
)
from host.importers.decoders.gguf.form import GgufForm

MODEL_TYPES = ("gpt2",)
_PRODUCTS = {
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


def _gguf_fields(metadata: Config, names: Collection[str]) -> dict[str, Any]:
    """Fields of config.json out of a GGUF file's metadata. Its activation is the tanh form, always."""
    return {
        "n_layer": metadata.whole("gpt2.block_count", 1, MAX_LAYERS),
        "n_embd": metadata.whole("gpt2.embedding_length", 1, MAX_HIDDEN),
        "n_head": metadata.whole("gpt2.attention.head_count", 1, MAX_HEADS),
        "n_inner": metadata.whole("gpt2.feed_forward_length", 1, MAX_INTERMEDIATE),
        "n_positions": metadata.whole("gpt2.context_length", 1, MAX_POSITIONS),
        "layer_norm_epsilon": metadata.number("gpt2.attention.layer_norm_epsilon", 0.0, 1.0),
        "activation_function": "gelu_new",
        "tie_word_embeddings": "output.weight" not in names,
    }


GGUF = GgufForm(
    "gpt2",
    keys=(
        "vocab_size",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_epsilon",
    ),
    whole=_gguf_fields,
    outer={
        "token_embd.weight": "transformer.wte.weight",
        "position_embd.weight": "transformer.wpe.weight",
        "output_norm.weight": "transformer.ln_f.weight",
        "output_norm.bias": "transformer.ln_f.bias",
        "output.weight": HEAD,
    },
    inner={"attn_norm": "ln_1", "ffn_norm": "ln_2", **_PRODUCTS},
    layers="transformer.h",
    transposed=tuple(_PRODUCTS.values()),
)


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    config.only("add_cross_attention", False)
    layers = config.whole("n_layer", 1, MAX_LAYERS)
    hidden = config.whole("n_embd", 1, MAX_HIDDEN)
    heads = config.whole("n_head", 1, MAX_HEADS)
    if hidden % heads:
        raise config.error(f"n_embd {hidden} is no multiple of {heads} heads")
    size = hidden // heads
    scale = size**-0.5 if config.truth("scale_attn_weights", True) else 1.0
    by_layer = config.truth("scale_attn_by_inverse_layer_idx", False)
    model = DecoderDescription(
        layers=tuple(Layer(0, None, scale / (number + 1 if by_layer else 1)) for number in range(layers)),
        hidden=hidden,
        heads=heads,
        key_heads=heads,
        head_size=size,
        intermediate=config.whole("n_inner", 1, MAX_INTERMEDIATE, 4 * hidden),
        vocabulary=config.whole("vocab_size", 1, MAX_VOCABULARY),
        positions=config.whole("n_positions", 1, MAX_POSITIONS),
        norm=NormKind("layer", config.number("layer_norm_epsilon", 0.0, 1.0, 1e-5)),
        activation=config.activation("activation_function", "gelu_new"),
        gated=False,
    )
    # The first files were written without the name of the model's body.
    prefix = "" if "wte.weight" in names else "transformer."
    return model, _weights(config, model, prefix)


def _weights(config: Config, model: DecoderDescription, prefix: str) -> DecoderWeights:
    hidden, vocabulary = model.hidden, model.vocabulary
    embedding = Product((Matrix(f"{prefix}wte.weight", vocabulary, hidden),))
    tied = config.truth("tie_word_embeddings", True)
    return DecoderWeights(
        embedding,
        tuple(_layer(f"{prefix}h.{number}", model) for number in range(len(model.layers))),
        _norm(f"{prefix}ln_f", hidden),
        embedding if tied else Product((Matrix(HEAD, vocabulary, hidden),)),
        Matrix(f"{prefix}wpe.weight", model.positions, hidden),
    )


def _layer(prefix: str, model: DecoderDescription) -> LayerWeights:
    hidden, inner = model.hidden, model.intermediate
    return LayerWeights(
        attention_norm=_norm(f"{prefix}.ln_1", hidden),
        query_key_value=_product(f"{prefix}.attn.c_attn", 3 * hidden, hidden),
        output=_product(f"{prefix}.attn.c_proj", hidden, hidden),
        feed_norm=_norm(f"{prefix}.ln_2", hidden),
        up=_product(f"{prefix}.mlp.c_fc", inner, hidden),
        down=_product(f"{prefix}.mlp.c_proj", hidden, inner),
    )


def _product(name: str, rows: int, columns: int) -> Product:
    return Product((Matrix(f"{name}.weight", rows, columns, True),), (Vector(f"{name}.bias", rows),))


def _norm(name: str, size: int) -> NormWeights:
    return NormWeights(Vector(f"{name}.weight", size), Vector(f"{name}.bias", size))
