"""A decoder as relax: a step of one token, and the prefill of a chunk of tokens, over the same constants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tvm
from tvm import relax

from host.importers.decoders.constants import Constants
from host.importers.decoders.description import (
    DecoderDescription,
    DecoderWeights,
    Layer,
    LayerWeights,
    NormWeights,
    Product,
    Rotary,
)
from host.importers.decoders.products import (
    Products,
    form_options,
    own_call,
    product_name,
)
from host.importers.decoders.reference.roundings import Roundings
from host.importers.layers import LayerNames
from host.model import TensorSpec

# What the compiler reads the operations by.
ATTENTION = "edgetlm.cached_attention"
ROWS = "edgetlm.quantised_rows"
# Positions of a block of the key cache, within which the elements of one place of a head lie side by side.
BLOCK = 16

_ACTIVATIONS = {
    "silu": relax.op.nn.silu,
    "gelu": relax.op.nn.gelu,
    "gelu_tanh": relax.op.nn.gelu_tanh,
    "relu": relax.op.nn.relu,
}


def state_specs(description: DecoderDescription, context: int, kept: str) -> tuple[TensorSpec, ...]:
    """The caches of all layers: "key_i" (Hkv, C/16, D, 16) and "value_i" (Hkv, C, D).

    Elements are of type `kept`, see `Constants`. Those of bytes have scales before them: "key_scale_i" and
    "value_scale_i" (Hkv, C/16, 16) in half precision.
    """
    heads, size = description.key_heads, description.head_size
    places = (heads, context // BLOCK, BLOCK)
    scales = [("key_scale", places), ("value_scale", places)] if kept == "int8" else []
    caches = [("key", (heads, context // BLOCK, size, BLOCK)), ("value", (heads, context, size))]
    return tuple(
        TensorSpec(f"{kind}_{number}", shape, kept if kind in ("key", "value") else "float16")
        for number in range(len(description.layers))
        for kind, shape in (*scales, *caches)
    )


def build_step(
    description: DecoderDescription, weights: DecoderWeights, constants: Constants, context: int
) -> tvm.IRModule:
    """The module of one token: tokens (1), position (1), state -> logits (1, V).

    Raises:
        ModelFileError: a weight cannot be used.
        OSError: it cannot be read.
    """
    return _Builder(description, weights, constants, context).function(1, last=False)


def build_prefill(
    description: DecoderDescription,
    weights: DecoderWeights,
    constants: Constants,
    context: int,
    chunk: int,
    roundings: Roundings | None = None,
) -> tvm.IRModule:
    """The module of a chunk: tokens (P), position (1), last (1), state -> logits (1, V) of row `last`.

    Where products are rounded, what follows a prompt is computed by a step, and a chunk is for its keys and
    values alone: the result is row `last` of the last layer's attention, (1, Hq D), and nothing behind it is
    computed.

    Args:
        description: of the model.
        weights: where its weights lie.
        constants: its weights.
        context: positions that there are.
        chunk: tokens of a call.
        roundings: what it may round further than a step; None for nothing.

    Raises:
        ModelFileError: a weight cannot be used.
        OSError: it cannot be read.
    """
    roundings = roundings or Roundings()
    builder = _Builder(description, weights, constants, context, roundings)
    return builder.function(chunk, last=True, kept=roundings.products)


def build_verify(
    description: DecoderDescription, weights: DecoderWeights, constants: Constants, context: int, rows: int
) -> tvm.IRModule:
    """The module of some tokens, each verified: tokens (S), position (1), state -> logits (S, V).

    Raises:
        ModelFileError: a weight cannot be used.
        OSError: it cannot be read.
    """
    return _Builder(description, weights, constants, context).function(rows, last=False)


def build_together(
    description: DecoderDescription, weights: DecoderWeights, constants: Constants, context: int, rows: int
) -> tvm.IRModule:
    """The module of a token of each of some texts: tokens (N), positions (N), N states -> logits (N, V).

    Row n has the state of text n, whose tensors are behind those of text n - 1. Products read their weights
    once for all rows.

    Raises:
        ModelFileError: a weight cannot be used.
        OSError: it cannot be read.
    """
    return _Builder(description, weights, constants, context).function(rows, last=False, texts=rows)


class _Builder:
    """Emits the function of one entry, a step or a prefill, with relax's block builder."""

    def __init__(
        self,
        description: DecoderDescription,
        weights: DecoderWeights,
        constants: Constants,
        context: int,
        roundings: Roundings | None = None,
    ) -> None:
        self._model, self._weights = description, weights
        self._constants, self._context = constants, context
        self._roundings = roundings or Roundings()
        self._builder = relax.BlockBuilder()
        self._layers = LayerNames()
        self._products = Products(self._emit, constants, self._layers, self._roundings)
        # Rows of the tables of each rotation, for the positions of the tokens.
        self._rotations: dict[Rotary, tuple[Any, Any]] = {}

    def function(self, rows: int, *, last: bool, texts: int = 1, kept: bool = False) -> tvm.IRModule:
        """The module whose `main` takes so many tokens: of one text, or one of each of `rows` texts.

        With `kept`, it ends where all keys and values are.
        """
        tokens, position, row = (
            relax.Var(name, relax.TensorType((size,), "int32"))
            for name, size in (("tokens", rows), ("position", texts), ("last", 1))
        )
        specs = state_specs(self._model, self._context, self._constants.kept)
        state = [
            relax.Var(spec.name + (f"_of_{text}" if text else ""), relax.TensorType(spec.shape, spec.dtype))
            for text in range(texts)
            for spec in specs
        ]
        parameters = [tokens, position, *([row] if last else []), *state]
        with self._builder.function("main", parameters):
            with self._builder.dataflow():
                value = self._body(rows, tokens, position, state, kept)
                if last:
                    value = self._emit(relax.op.take(value, row, axis=0, mode="clip"))
                output = self._builder.emit_output(value if kept else self._logits(value))
            self._builder.emit_func_output(output)
        return self._layers.written(self._builder.finalize())

    def _body(self, rows: int, tokens: Any, position: Any, state: Sequence[Any], kept: bool) -> Any:
        """The rows after the last layer, or of its attention where keys and values alone are wanted."""
        value = self._embedding(rows, tokens)
        places = position
        if _sizes(position) != (rows,):
            steps = relax.const(np.arange(rows, dtype=np.int32))
            places = self._emit(relax.op.add(position, steps))
        if self._weights.positions is not None:
            table = self._constants.positions(self._weights.positions)
            value = self._emit(
                relax.op.add(value, self._emit(relax.op.take(table, places, axis=0, mode="clip")))
            )
        for number, (layer, weights) in enumerate(zip(self._model.layers, self._weights.layers, strict=True)):
            each = 4 if self._constants.kept == "int8" else 2
            count = each * len(self._model.layers)
            caches = [state[first : first + each] for first in range(each * number, len(state), count)]
            made = self._attention(
                rows, self._norm(value, weights.attention_norm), (layer, weights), (position, places), caches
            )
            if kept and number + 1 == len(self._model.layers):
                return made
            value = self._behind(rows, value, made, weights)
        return value

    def _behind(self, rows: int, value: Any, made: Any, weights: LayerWeights) -> Any:
        """The rows after a layer: `value` are those before it, and `made` those of its attention."""
        made = self._products.whole(made, weights.output, rounded=True)
        if weights.after_attention is not None:
            made = self._norm(made, weights.after_attention)
        value = self._emit(relax.op.add(value, made))
        made = self._feed(rows, self._norm(value, weights.feed_norm), weights)
        if weights.after_feed is not None:
            made = self._norm(made, weights.after_feed)
        return self._emit(relax.op.add(value, made))

    def _attention(
        self, rows: int, value: Any, layer: tuple[Layer, LayerWeights], places: tuple[Any, Any], caches: Any
    ) -> Any:
        """Rows (T, Hq D) of the attention."""
        kind, weights = layer
        heads, keys, size = self._model.heads, self._model.key_heads, self._model.head_size
        # A head that rotates as a whole is two rows of halves from the start: no reshape then keeps the
        # slice, the rotation and what is between them from being one kernel.
        head = (2, size // 2) if kind.rotary and 2 * len(kind.rotary.frequencies) == size else (size,)
        query, key, own = self._query_key_value(rows, value, weights.query_key_value, head)
        if weights.query_norm is not None and weights.key_norm is not None:
            query = self._norm(query, weights.query_norm, head)
            key = self._norm(key, weights.key_norm, head)
        if kind.rotary is not None:
            query, key = (self._rotated(one, kind.rotary, places[1]) for one in (query, key))
        query, key, own = (
            self._shaped(one, (rows, count, size))
            for one, count in ((query, heads), (key, keys), (own, keys))
        )
        window = kind.window if kind.window < self._context else 0
        options = {"scale": kind.attention_scale, "window": window, "cap": kind.attention_cap}
        options |= {"rounded": True} if self._roundings.attention else {}
        made = self._attended((query, key, own), places[0], caches, options)
        self._layers.record(made, _parent(weights.output), "attention")
        made = made[0] if len(made) == 1 else self._emit(relax.op.concat(made, axis=0))
        return self._emit(relax.op.reshape(made, (rows, heads * size)))

    def _query_key_value(
        self, rows: int, value: Any, product: Product, head: tuple[int, ...]
    ) -> tuple[Any, Any, Any]:
        """Rows (T, Hq, D), and two of (T, Hkv, D); D as `head` has it, one dimension or two."""
        heads, keys = self._model.heads, self._model.key_heads
        if not self._roundings.scores:
            joined = self._products.whole(value, product)
            joined = self._emit(relax.op.reshape(joined, (rows, heads + 2 * keys, *head)))
            ends = (0, heads, heads + keys, heads + 2 * keys)
            query, key, own = (
                self._emit(relax.op.strided_slice(joined, [1], [begin], [end]))
                for begin, end in pairwise(ends)
            )
            return query, key, own
        # Values stay exact: the cache keeps what rounding does to them, and logits move further by it.
        scores, own = self._products.divided(value, product, (heads + keys) * self._model.head_size)
        scores = self._emit(relax.op.reshape(scores, (rows, heads + keys, *head)))
        query, key = (
            self._emit(relax.op.strided_slice(scores, [1], [begin], [end]))
            for begin, end in ((0, heads), (heads, heads + keys))
        )
        return query, key, self._emit(relax.op.reshape(own, (rows, keys, *head)))

    def _attended(
        self, heads: tuple[Any, Any, Any], position: Any, caches: Any, options: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Rows (T, Hq, D) of one text, or a row of each text: every text's attention has its own caches."""
        shape = _sizes(heads[0])
        if len(caches) == 1:
            return (self._call(ATTENTION, [*heads, position, *caches[0]], options, shape),)
        made = []
        for text, own in enumerate(caches):
            rows = (relax.op.strided_slice(one, [0], [text], [text + 1]) for one in (*heads, position))
            made.append(self._call(ATTENTION, [*map(self._emit, rows), *own], options, (1, *shape[1:])))
        return tuple(made)

    def _rotated(self, heads: Any, rotary: Rotary, places: Any) -> Any:
        """Heads (T, H, 2, pairs), or (T, H, D) of which a part rotates, each rotated by its position."""
        if rotary not in self._rotations:
            cosine, sine = (
                self._emit(relax.op.take(table, places, axis=0, mode="clip"))
                for table in self._constants.rotation(rotary)
            )
            self._rotations[rotary] = (cosine, sine)
        cosine, sine = self._rotations[rotary]
        pairs, shape = len(rotary.frequencies), _sizes(heads)
        if len(shape) == 4:
            other = self._emit(relax.op.multiply(self._emit(relax.op.flip(heads, axis=2)), sine))
            return self._emit(relax.op.add(self._emit(relax.op.multiply(heads, cosine)), other))
        part = self._emit(relax.op.strided_slice(heads, [2], [0], [2 * pairs]))
        halves = self._emit(relax.op.reshape(part, (*shape[:2], 2, pairs)))
        made = self._shaped(self._rotated(halves, rotary, places), (*shape[:2], 2 * pairs))
        rest = self._emit(relax.op.strided_slice(heads, [2], [2 * pairs], [shape[2]]))
        return self._emit(relax.op.concat([made, rest], axis=2))

    def _feed(self, rows: int, value: Any, weights: LayerWeights) -> Any:
        activation = _ACTIVATIONS[self._model.activation]
        made = self._products.whole(value, weights.up, rounded=True)
        if not self._model.gated:
            made = self._activated(activation(made), weights)
            return self._products.whole(made, weights.down, rounded=True)
        inner = self._model.intermediate
        gate, up = (
            self._emit(relax.op.strided_slice(made, [1], [begin], [begin + inner])) for begin in (0, inner)
        )
        gate = self._emit(activation(gate))
        made = self._activated(relax.op.multiply(gate, up), weights)
        return self._products.whole(made, weights.down, rounded=True)

    def _activated(self, expression: Any, weights: LayerWeights) -> Any:
        value = self._emit(expression)
        self._layers.record(value, _parent(weights.down), self._model.activation)
        return value

    def _embedding(self, rows: int, tokens: Any) -> Any:
        (table,) = self._constants.product(self._weights.embedding).weights
        if table.form is None:
            value = self._emit(relax.op.take(table.arrays[0], tokens, axis=0, mode="clip"))
        else:
            shape = (rows, self._model.hidden)
            value = self._call(ROWS, [tokens, *table.arrays], form_options(table.form), shape)
        if table.order is not None:
            places = np.argsort(np.from_dlpack(table.order.value)).astype(np.int32)
            value = self._emit(relax.op.take(value, relax.const(places), axis=1, mode="clip"))
        self._layers.record(value, product_name(self._weights.embedding), "embedding")
        if self._model.embedding_scale == 1.0:
            return value
        return self._emit(relax.op.multiply(value, relax.const(self._model.embedding_scale, "float32")))

    def _logits(self, value: Any) -> Any:
        value = self._products.whole(self._norm(value, self._weights.final_norm), self._weights.head)
        cap = self._model.logit_cap
        if not cap:
            return value
        value = self._emit(relax.op.multiply(value, relax.const(1.0 / cap, "float32")))
        return self._emit(relax.op.multiply(self._emit(relax.op.tanh(value)), relax.const(cap, "float32")))

    def _norm(self, value: Any, weights: NormWeights, shape: tuple[int, ...] = ()) -> Any:
        """Rows normalised; `shape` is that of a row where it is not one dimension."""
        kind = self._model.norm
        weight, bias = self._constants.norm(kind, weights)
        if bias is None:
            axes = list(range(-len(shape), 0)) or [-1]
            weight = self._shaped(weight, shape or _sizes(weight))
            made = self._emit(relax.op.nn.rms_norm(value, weight, axes=axes, epsilon=kind.epsilon))
        else:
            made = self._emit(relax.op.nn.layer_norm(value, weight, bias, axes=[-1], epsilon=kind.epsilon))
        self._layers.record(made, weights.weight.name.removesuffix(".weight"), "normalisation")
        return made

    def _call(
        self, name: str, arguments: Sequence[Any], options: dict[str, Any], shape: tuple[int, ...]
    ) -> Any:
        return self._emit(own_call(name, arguments, options, shape))

    def _shaped(self, value: Any, shape: tuple[int, ...]) -> Any:
        return value if _sizes(value) == shape else self._emit(relax.op.reshape(value, shape))

    def _emit(self, expression: Any) -> Any:
        return self._builder.emit(expression)


def _parent(product: Product) -> str:
    """The module that a product's module is in."""
    return product_name(product).rpartition(".")[0]


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in value.ty.shape)
