"""What architectures after LLaMA have in common: names of fields and of weights."""

from __future__ import annotations

from dataclasses import dataclass

from host.importers.decoders.config import (
    MAX_HEAD_SIZE,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_INTERMEDIATE,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCABULARY,
    Config,
)
from host.importers.decoders.description import (
    DecoderDescription,
    DecoderWeights,
    Layer,
    LayerWeights,
    Matrix,
    NormKind,
    NormWeights,
    Product,
    Rotary,
    Vector,
)
from host.importers.decoders.rotary import read_rotary, rope_parameters


@dataclass(frozen=True)
class Sizes:
    """Numbers of a config.json that every architecture of the family has."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    positions: int


def read_sizes(config: Config, *, head_size: int = 0, equal_heads: bool = False) -> Sizes:
    """The sizes.

    Args:
        config: of the model.
        head_size: where the config has none; 0 for hidden size by heads.
        equal_heads: whether a config that does not say has as many heads of keys as of queries.

    Raises:
        ModelFileError: one is missing or out of range, or they do not fit together.
    """
    layers = config.whole("num_hidden_layers", 1, MAX_LAYERS)
    hidden = config.whole("hidden_size", 1, MAX_HIDDEN)
    heads = config.whole("num_attention_heads", 1, MAX_HEADS)
    name = "num_key_value_heads"
    # A null means as many as of queries; where the field is absent, most architectures have another number.
    given = name in config.values or not equal_heads
    key_heads = config.whole(name, 1, MAX_HEADS, heads if name in config.values else None) if given else heads
    if heads % key_heads:
        raise config.error(f"{heads} heads of queries are no multiple of {key_heads} heads of keys")
    size = config.whole_or("head_dim", MAX_HEAD_SIZE, head_size or max(hidden // heads, 1))
    if size > MAX_HEAD_SIZE or (not head_size and not config.has("head_dim") and hidden % heads):
        raise config.error(f"hidden_size {hidden} does not fit {heads} heads")
    return Sizes(
        layers,
        hidden,
        heads,
        key_heads,
        size,
        config.whole("intermediate_size", 1, MAX_INTERMEDIATE),
        config.whole("vocab_size", 1, MAX_VOCABULARY),
        config.whole("max_position_embeddings", 1, MAX_POSITIONS),
    )


def layer_windows(config: Config, layers: int, standard: list[int] | None = None) -> tuple[int, ...]:
    """The window of each layer by `layer_types`; 0 for all positions.

    Args:
        config: of the model, with `sliding_window`.
        layers: number of layers.
        standard: where the config has no `layer_types`; all positions for None.

    Raises:
        ImportFailed: a type of layer that is not implemented.
        ModelFileError: not one for each layer, or no window for one that has one.
    """
    if not config.has("layer_types"):
        return tuple(standard or [0] * layers)
    types = config.texts("layer_types", MAX_LAYERS)
    if len(types) != layers:
        raise config.error(f"layer_types has {len(types)} entries for {layers} layers")
    for one in types:
        if one not in ("full_attention", "sliding_attention"):
            raise config.unsupported(f"layer type {one!r}")
    return tuple(window(config) if one == "sliding_attention" else 0 for one in types)


def window(config: Config) -> int:
    """The tokens that a sliding window covers, from the field `sliding_window`."""
    return config.whole("sliding_window", 1, MAX_POSITIONS)


def own_rotary(config: Config, sizes: Sizes, *, partial: bool = False) -> tuple[Rotary, int]:
    """The one rotation of all layers, and the positions that it serves; see `read_rotary`."""
    return read_rotary(config, rope_parameters(config), sizes.head_size, partial=partial)


def description(
    config: Config,
    sizes: Sizes,
    rotary: Rotary,
    windows: tuple[int, ...],
    *,
    positions: int = 0,
    epsilon: float = 1e-6,
) -> DecoderDescription:
    """The description of a decoder with RMS norms and a gated feed-forward part."""
    layer = [Layer(one, rotary, sizes.head_size**-0.5) for one in windows]
    return DecoderDescription(
        layers=tuple(layer),
        hidden=sizes.hidden,
        heads=sizes.heads,
        key_heads=sizes.key_heads,
        head_size=sizes.head_size,
        intermediate=sizes.intermediate,
        vocabulary=sizes.vocabulary,
        positions=min(positions or sizes.positions, sizes.positions),
        norm=NormKind("rms", config.number("rms_norm_eps", 0.0, 1.0, epsilon)),
        activation=config.activation("hidden_act", "silu"),
    )


@dataclass(frozen=True)
class Names:
    """The weights of an architecture besides those that all have.

    Attributes:
        query_bias: biases of queries, keys and values.
        output_bias: bias of the attention's output.
        feed_bias: biases of the feed-forward part.
        head_norms: norms of queries and keys of each head.
        fused: queries, keys and values are one matrix, and so are gate and up.
        sandwich: both parts are normalised before they are added, by norms named as Gemma does.
        tied: what a config without `tie_word_embeddings` means.
    """

    query_bias: bool = False
    output_bias: bool = False
    feed_bias: bool = False
    head_norms: bool = False
    fused: bool = False
    sandwich: bool = False
    tied: bool = False


def weights(config: Config, sizes: Sizes, names: Names) -> DecoderWeights:
    """Names and shapes of the weights in the files of an architecture like LLaMA's."""
    embedding = _product("model.embed_tokens", sizes.vocabulary, sizes.hidden)
    tied = config.truth("tie_word_embeddings", names.tied)
    return DecoderWeights(
        embedding,
        tuple(_layer(f"model.layers.{number}", sizes, names) for number in range(sizes.layers)),
        _norm("model.norm", sizes.hidden),
        embedding if tied else _product("lm_head", sizes.vocabulary, sizes.hidden),
    )


def _layer(prefix: str, sizes: Sizes, names: Names) -> LayerWeights:
    attention, feed, hidden = f"{prefix}.self_attn", f"{prefix}.mlp", sizes.hidden
    queries, keys = sizes.heads * sizes.head_size, sizes.key_heads * sizes.head_size
    if names.fused:
        joined = _product(f"{attention}.qkv_proj", queries + 2 * keys, hidden)
        up = _product(f"{feed}.gate_up_proj", 2 * sizes.intermediate, hidden)
    else:
        rows = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys))
        joined = _join([_product(f"{attention}.{name}", n, hidden, names.query_bias) for name, n in rows])
        parts = [f"{feed}.{name}" for name in ("gate_proj", "up_proj")]
        up = _join([_product(part, sizes.intermediate, hidden, names.feed_bias) for part in parts])
    heads = [
        _norm(f"{attention}.{name}", sizes.head_size) if names.head_norms else None
        for name in ("q_norm", "k_norm")
    ]
    second = "pre_feedforward_layernorm" if names.sandwich else "post_attention_layernorm"
    after = [
        _norm(f"{prefix}.{name}_layernorm", hidden) if names.sandwich else None
        for name in ("post_attention", "post_feedforward")
    ]
    return LayerWeights(
        attention_norm=_norm(f"{prefix}.input_layernorm", hidden),
        query_key_value=joined,
        output=_product(f"{attention}.o_proj", hidden, queries, names.output_bias),
        feed_norm=_norm(f"{prefix}.{second}", hidden),
        up=up,
        down=_product(f"{feed}.down_proj", hidden, sizes.intermediate, names.feed_bias),
        query_norm=heads[0],
        key_norm=heads[1],
        after_attention=after[0],
        after_feed=after[1],
    )


def _product(name: str, rows: int, columns: int, bias: bool = False) -> Product:
    biases = (Vector(f"{name}.bias", rows),) if bias else ()
    return Product((Matrix(f"{name}.weight", rows, columns),), biases)


def _join(products: list[Product]) -> Product:
    return Product(
        tuple(part for product in products for part in product.parts),
        tuple(bias for product in products for bias in product.biases),
    )


def _norm(name: str, size: int) -> NormWeights:
    return NormWeights(Vector(f"{name}.weight", size))
