"""The description of a decoder and of its weights, for every architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# The head's weight in the files of every architecture.
HEAD = "lm_head.weight"


@dataclass(frozen=True)
class NormKind:
    """How rows are normalised.

    Attributes:
        kind: "rms" or "layer".
        epsilon: added to the mean square, or to the variance.
        offset: added to the weight (1 in Gemma).
    """

    kind: str
    epsilon: float
    offset: float = 0.0


@dataclass(frozen=True)
class Rotary:
    """Rotary position embedding: pairs of elements i and i + n/2 of a head are rotated.

    Attributes:
        frequencies: radians of each pair per position, n/2 of them; the first n elements of a head rotate.
        scale: factor of cosine and sine.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class Layer:
    """The figures in which layers differ.

    Attributes:
        window: positions that a query sees, itself included; 0 for all before it.
        rotary: of queries and keys; None without.
        attention_scale: factor of the products of queries and keys.
        attention_cap: what is scaled becomes cap * tanh(scaled / cap) before the softmax; 0 for none.
    """

    window: int
    rotary: Rotary | None
    attention_scale: float
    attention_cap: float = 0.0


@dataclass(frozen=True)
class DecoderDescription:
    """Sizes and kinds of one decoder.

    Attributes:
        layers: in order.
        hidden: elements of a row between layers.
        heads, key_heads: of queries, and of keys and values.
        head_size: elements of a head.
        intermediate: elements between the products of the feed-forward part.
        vocabulary: rows of the embedding, and logits.
        positions: most positions that the model is made for.
        norm: of rows between layers.
        activation: "silu", "gelu", "gelu_tanh" or "relu".
        gated: whether the activation multiplies a second product (SwiGLU and the like).
        embedding_scale: factor of embedded rows.
        logit_cap: logits become cap * tanh(logits / cap); 0 for none.
    """

    layers: tuple[Layer, ...]
    hidden: int
    heads: int
    key_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    positions: int
    norm: NormKind
    activation: str
    gated: bool = True
    embedding_scale: float = 1.0
    logit_cap: float = 0.0


@dataclass(frozen=True)
class Matrix:
    """A matrix (rows, columns) that multiplies columns of its input into rows of its output.

    Attributes:
        name: in the files.
        rows, columns: N outputs and K inputs.
        transposed: whether the files have it as (columns, rows).
    """

    name: str
    rows: int
    columns: int
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix in the files: (inputs, outputs) where it is stored transposed."""
        return (self.columns, self.rows) if self.transposed else (self.rows, self.columns)


@dataclass(frozen=True)
class Vector:
    """A bias, or the weight or bias of a norm."""

    name: str
    size: int


@dataclass(frozen=True)
class Product:
    """One product of rows with matrices that lie one after the other along the outputs.

    Attributes:
        parts: all of the same number of columns.
        biases: of the parts, in the same order; none where the product has none.
    """

    parts: tuple[Matrix, ...]
    biases: tuple[Vector, ...] = ()

    @property
    def rows(self) -> int:
        """Number of outputs, N."""
        return sum(part.rows for part in self.parts)

    @property
    def columns(self) -> int:
        """Number of inputs, K."""
        return self.parts[0].columns


@dataclass(frozen=True)
class NormWeights:
    """Weight and bias of a norm; RMS norms have no bias."""

    weight: Vector
    bias: Vector | None = None


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer, as places in the tensors of the files.

    Attributes:
        attention_norm, feed_norm: of the inputs of the two parts.
        query_key_value: queries of all heads, then keys, then values.
        output: of the attention.
        up: gate and then up where the layer is gated, up alone otherwise.
        down: back to the hidden size.
        query_norm, key_norm: of each head; None without.
        after_attention, after_feed: norms of what is added to the rows; None without.
    """

    attention_norm: NormWeights
    query_key_value: Product
    output: Product
    feed_norm: NormWeights
    up: Product
    down: Product
    query_norm: NormWeights | None = None
    key_norm: NormWeights | None = None
    after_attention: NormWeights | None = None
    after_feed: NormWeights | None = None

    def norms(self) -> Iterator[NormWeights]:
        """All norms that there are."""
        for norm in (
            self.attention_norm,
            self.feed_norm,
            self.query_norm,
            self.key_norm,
            self.after_attention,
            self.after_feed,
        ):
            if norm is not None:
                yield norm


@dataclass(frozen=True)
class DecoderWeights:
    """The weights of a decoder, as places in the tensors of the files.

    Attributes:
        embedding: a row of `columns` elements for each token; a product of one part.
        layers: in order.
        final_norm: before the head.
        head: rows to logits; equal to `embedding` where they are tied.
        positions: a row for each position that is added to the embedding; None without.
    """

    embedding: Product
    layers: tuple[LayerWeights, ...]
    final_norm: NormWeights
    head: Product
    positions: Matrix | None = None

    def products(self) -> Iterator[Product]:
        """The products of the embedding, the layers and the head; a head that is the embedding comes once."""
        yield self.embedding
        for layer in self.layers:
            yield from (layer.query_key_value, layer.output, layer.up, layer.down)
        if self.head != self.embedding:
            yield self.head

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and shape of every weight, as the files must have it."""
        for product in self.products():
            yield from ((part.name, part.shape) for part in product.parts)
            yield from ((bias.name, (bias.size,)) for bias in product.biases)
        if self.positions is not None:
            yield self.positions.name, self.positions.shape
        norms = [self.final_norm, *(norm for layer in self.layers for norm in layer.norms())]
        for norm in norms:
            yield norm.weight.name, (norm.weight.size,)
            if norm.bias is not None:
                yield norm.bias.name, (norm.bias.size,)
