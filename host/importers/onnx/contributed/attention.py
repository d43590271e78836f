"""Attention with its projections, masks and caches, and rotary embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from onnx import TensorProto

from host.importers.onnx.contributed.body import Body


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values of attention, by head.

    Attributes:
        query: of shape [batch, heads, queries, size].
        key: of shape [batch, heads, keys, size].
        value: of shape [batch, heads, keys, size of a value].
        queries: number of queries.
        keys: number of keys, with those of the cache.
        size: of a query and a key.
    """

    query: str
    key: str
    value: str
    queries: int
    keys: int
    size: int


def attended(body: Body, heads: Heads, kind: np.dtype, masks: list[str]) -> str:
    """Write attention, and return its result as [batch, queries, heads x size of a value].

    Args:
        body: gets the nodes.
        heads: what attends to what.
        kind: type of the elements.
        masks: addends of the scores, of shapes that broadcast to [batch, heads, queries, keys].
    """
    if body.attribute("unidirectional", 0):
        masks = [*masks, _causal(body, heads.queries, heads.keys, kind)]
    made = body.add("MatMul", body.add("Softmax", scored(body, heads, kind, masks), axis=-1), heads.value)
    return body.reshape(body.add("Transpose", made, perm=[0, 2, 1, 3]), 0, 0, -1)


def scored(body: Body, heads: Heads, kind: np.dtype, masks: list[str]) -> str:
    """Write the scores of keys, [batch, heads, queries, keys]: see `attended`.

    The attribute `softcap`, where it is not 0, is the bound that scores come near to before the masks.
    """
    scale = body.attribute("scale", 0.0) or 1 / math.sqrt(heads.size)
    scores = body.add("MatMul", heads.query, body.add("Transpose", heads.key, perm=[0, 1, 3, 2]))
    cap = body.attribute("softcap", 0.0)
    scores = body.add("Mul", scores, body.constant(scale / cap if cap else scale, kind))
    if cap:
        scores = body.add("Mul", body.add("Tanh", scores), body.constant(cap, kind))
    for mask in masks:
        scores = body.add("Add", scores, mask)
    return scores


def by_head(body: Body, value: str, heads: int) -> str:
    """Write [batch, length, heads x size] as [batch, heads, length, size]."""
    return body.add("Transpose", body.reshape(value, 0, 0, heads, -1), perm=[0, 2, 1, 3])


def _causal(body: Body, queries: int, keys: int, kind: np.dtype) -> str:
    """Nothing for the keys up to a query's own place, which counts from the end of the cache."""
    later = body.positions(keys)[None, :] > body.positions(queries)[:, None] + keys - queries
    return body.constant(np.where(later, _masked(body), 0)[None, None], kind)


def _masked(body: Body) -> float:
    return float(body.attribute("mask_filter_value", -10000.0))


def padding(body: Body, mask: str, batch: int, heads: Heads, kind: np.dtype) -> str:
    """Write the addend of scores that a mask of tokens stands for.

    Args:
        body: gets the nodes.
        mask: whole numbers: 1 for a key that counts as [batch, keys] or [batch, queries, keys]; or lengths as
            [batch]; or ends and starts as [2 x batch].
        batch: number of rows.
        heads: has the number of keys.
        kind: type of the scores.

    Raises:
        ImportFailed: a mask of another form.
    """
    shape = body.shape(mask)
    if len(shape) == 1 and shape[0] in (batch, 2 * batch):
        places = body.constant(body.positions(heads.keys)[None], np.int32)
        ends = body.unsqueeze(body.part(mask, 0, batch, 0), 1)
        counts = body.add("Less", places, ends)
        if shape[0] == 2 * batch:
            starts = body.unsqueeze(body.part(mask, batch, 2 * batch, 0), 1)
            counts = body.add("And", counts, body.add("Not", body.add("Less", places, starts)))
        counts = body.unsqueeze(counts, 1, 2)
    elif shape in ((batch, heads.keys), (batch, heads.queries, heads.keys)):
        counts = body.add("Cast", mask, to=TensorProto.BOOL)
        counts = body.unsqueeze(counts, *((1, 2) if len(shape) == 2 else (1,)))
    else:
        raise body.fail(f"a mask of shape {list(shape)} has no conversion")
    return body.add("Where", counts, body.constant(0, kind), body.constant(_masked(body), kind))


def with_projection(body: Body, projected: str, kind: np.dtype, mask: str, past: str, extra: str) -> None:
    """Write attention of queries, keys and values that one product has made, and set the outputs.

    Args:
        body: gets the nodes; its first input has the shape [batch, length, hidden].
        projected: queries, keys and values side by side, as [batch, length, sizes].
        kind: type of the elements.
        mask: see `padding`; "" for none.
        past: cache of shape [2, batch, heads, length, size], "" for none.
        extra: addend of the scores, "" for none.
    """
    batch, length, _ = body.shape(body.inputs(1)[0])
    count = body.attribute("num_heads", 0)
    hidden = body.shape(body.inputs(2)[1])[-1]
    sizes = body.attribute("qkv_hidden_sizes", None) or [hidden // 3] * 3
    if count < 1 or len(sizes) != 3 or any(one < 1 or one % count for one in sizes) or sum(sizes) != hidden:
        raise body.fail(f"{count} heads of sizes {sizes} have no conversion")
    ends = np.cumsum([0, *sizes]).tolist()
    query, key, value = (
        by_head(body, body.part(projected, start, stop), count) for start, stop in pairwise(ends)
    )
    keys = length
    if past:
        keys += body.shape(past)[3]
        key, value = (
            body.add("Concat", body.add("Gather", past, body.constant(index, np.int64)), one, axis=2)
            for index, one in enumerate((key, value))
        )
    heads = Heads(query, key, value, length, keys, sizes[0] // count)
    masks = [padding(body, mask, batch, heads, kind)] if mask else []
    body.set_output(attended(body, heads, kind, [*masks, *([extra] if extra else [])]))
    if body.has_output(1):
        both = [body.unsqueeze(one, 0) for one in (heads.key, heads.value)]
        body.set_output(body.add("Concat", *both, axis=0), 1)


def _attention(body: Body) -> None:
    x, weights, bias, mask, past, extra, past_length = body.inputs(7)
    body.without(
        past_sequence_length=past_length,
        do_rotary=body.attribute("do_rotary", 0),
        past_present_share_buffer=body.attribute("past_present_share_buffer", 0),
    )
    projected = body.add("MatMul", x, weights)
    projected = body.add("Add", projected, bias) if bias else projected
    with_projection(body, projected, body.dtype(x), mask, past, extra)


def _multi_head(body: Body) -> None:
    query, key, value, bias, mask, extra, past_key, past_value = body.inputs(8)
    body.without(**{f"input {index}": name for index, name in enumerate(body.all_inputs) if index > 7})
    if not key or not value or len(body.shape(query)) != 3:
        raise body.fail("queries, keys and values in one tensor have no conversion")
    count = body.attribute("num_heads", 0)
    batch, queries, hidden = body.shape(query)
    if count < 1 or hidden % count:
        raise body.fail(f"{count} heads of {hidden} elements have no conversion")
    kind, shape = body.dtype(query), body.shape(key)
    sides = [query, key, value]
    widths = [hidden, shape[-1], body.shape(value)[-1]] if len(shape) == 3 else [hidden]
    if bias:
        ends = np.cumsum([0, *widths]).tolist()
        for index in range(len(widths)):
            addend = body.part(bias, ends[index], ends[index + 1])
            sides[index] = body.add("Add", sides[index], addend)
    sides = [by_head(body, one, count) if index < len(widths) else one for index, one in enumerate(sides)]
    keys = shape[1] if len(shape) == 3 else shape[2]
    if past_key and past_value:
        keys += body.shape(past_key)[2]
        sides[1] = body.add("Concat", past_key, sides[1], axis=2)
        sides[2] = body.add("Concat", past_value, sides[2], axis=2)
    heads = Heads(sides[0], sides[1], sides[2], queries, keys, hidden // count)
    masks = [padding(body, mask, batch, heads, kind)] if mask else []
    body.set_output(attended(body, heads, kind, [*masks, *([extra] if extra else [])]))
    body.set_output(sides[1], 1)
    body.set_output(sides[2], 2)


def _rotary(body: Body) -> None:
    x, positions, cosines, sines = body.inputs(4)
    body.without(is_packed_batching=body.attribute("is_packed_batching", 0))
    shape, half = body.shape(x), body.shape(cosines)[-1]
    size = body.attribute("rotary_embedding_dim", 0) or 2 * half
    count = body.attribute("num_heads", 0)
    if len(shape) == 3:
        count = count or shape[2] // size
        value, length, axis = body.reshape(x, 0, 0, count, -1), shape[1], 2
    else:
        value, length, axis = x, shape[2], 1
    if body.shape(positions) == (1,):
        positions = body.unsqueeze(
            body.add("Add", positions, body.constant(body.positions(length), np.int64)), 0
        )
    cosine, sine = (
        body.unsqueeze(body.add("Gather", table, positions, axis=0), axis) for table in (cosines, sines)
    )
    width = shape[2] // count if len(shape) == 3 else shape[3]
    made = turned(body, value, cosine, sine, (size, width), body.attribute("interleaved", 0))
    body.set_output(body.reshape(made, 0, 0, -1) if len(shape) == 3 else made)


def turned(body: Body, value: str, cosine: str, sine: str, sizes: tuple[int, int], pairs: int) -> str:
    """Write a value of four axes with the first elements of the last one turned.

    Args:
        body: gets the nodes.
        value: the value.
        cosine: of each angle, in a shape that broadcasts to half of the elements that are turned.
        sine: likewise.
        sizes: how many elements are turned, of how many.
        pairs: whether two that turn together are neighbours, and not half of the elements apart.
    """
    size, width = sizes
    parts = [(0, size, 2), (1, size, 2)] if pairs else [(0, size // 2, 1), (size // 2, size, 1)]
    first, second = (body.part(value, start, stop, -1, step) for start, stop, step in parts)
    real = body.add("Sub", body.add("Mul", first, cosine), body.add("Mul", second, sine))
    imaginary = body.add("Add", body.add("Mul", second, cosine), body.add("Mul", first, sine))
    if pairs:
        both = body.add("Concat", body.unsqueeze(real, 4), body.unsqueeze(imaginary, 4), axis=-1)
        made = [body.reshape(both, 0, 0, 0, size)]
    else:
        made = [real, imaginary]
    rest = [body.part(value, size, width)] if size < width else []
    return body.add("Concat", *made, *rest, axis=-1) if len(made) + len(rest) > 1 else made[0]


EXPANSIONS = {"Attention": _attention, "MultiHeadAttention": _multi_head, "RotaryEmbedding": _rotary}
