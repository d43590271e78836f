"""Attention with fewer heads of keys than of queries, and its cache: GroupQueryAttention.

The cache is a buffer of T keys for each row of the batch. A row's new keys follow those that it has; how many
these are may be known only when the model runs, from the lengths that are an input of the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from host.importers.onnx.contributed.attention import Heads, by_head, scored, turned
from host.importers.onnx.contributed.body import Body

# Inputs and attributes of other execution providers, by name and place or default.
_OTHER_INPUTS = {"k_scale": 12, "v_scale": 13, "q_norm_weight": 14, "k_norm_weight": 15}
_OTHER_ATTRIBUTES = {
    "sliding_window_cache": 0,
    "qk_output": 0,
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "kv_cache_bit_width": 0,
}


@dataclass(frozen=True)
class _Form:
    """What the node's inputs and attributes say.

    Attributes:
        batch: rows.
        length: new tokens of each row.
        heads: of queries.
        groups: heads of keys and values.
        size: of a head.
        room: keys that the cache has on its way in, 0 without one.
        total: keys of the longest row, new ones included.
        lengths: name of the keys of each row, new ones included, as [batch, 1] of int32.
        fixed: the same, where it is known and one number for all rows; None elsewhere.
        kind: type of the elements.
    """

    batch: int
    length: int
    heads: int
    groups: int
    size: int
    room: int
    total: int
    lengths: str
    fixed: int | None
    kind: np.dtype

    @property
    def is_prompt(self) -> bool:
        """Whether all keys are new; what the cache has is then ignored."""
        return self.length == self.total

    @property
    def keys(self) -> int:
        """Keys of the cache on its way out."""
        return max(self.room, self.total)

    @property
    def shared(self) -> int:
        """Heads of queries for one of keys."""
        return self.heads // self.groups


def _group_query(body: Body) -> None:
    query, key, value, past_key, past_value, lengths, total, cosines, sines, positions, bias, sink = (
        body.inputs(12)
    )
    form = _form(body, (query, key, past_key), lengths, total)
    sides = _sides(body, form, query, key, value)
    if body.attribute("do_rotary", 0):
        angles = _angles(body, form, (cosines, sines), positions)
        sizes = (2 * body.shape(cosines)[-1], form.size)
        pairs = body.attribute("rotary_interleaved", 0)
        sides[:2] = [turned(body, one, *angles, sizes, pairs) for one in sides[:2]]
    keys = _kept(body, form, sides[1], past_key)
    values = _kept(body, form, sides[2], past_value)
    body.set_output(_attended(body, form, (sides[0], keys, values), bias, sink))
    body.set_output(keys, 1)
    body.set_output(values, 2)


def _form(body: Body, sides: tuple[str, str, str], lengths: str, total: str) -> _Form:
    """What is computed, of queries, keys and the cache of keys.

    Raises:
        ImportFailed: a form that has no conversion.
    """
    for name, index in _OTHER_INPUTS.items():
        body.without(**{name: body.inputs(index + 1)[index]})
    for name, default in _OTHER_ATTRIBUTES.items():
        body.without(**{name: body.attribute(name, default) != default})
    body.without_outputs(3)
    query, key, past = sides
    batch, length, width = body.shape(query)
    heads, groups = body.attribute("num_heads", 0), body.attribute("kv_num_heads", 0)
    parts = heads if key else heads + 2 * groups
    if heads < 1 or groups < 1 or heads % groups or width % parts:
        raise body.fail(
            f"{heads} heads of queries and {groups} of keys in {width} elements have no conversion"
        )
    if key and body.shape(key)[1] != length:
        raise body.fail(f"{body.shape(key)[1]} keys for {length} queries have no conversion")
    number = body.known(total)
    if number is None or number.size != 1:
        raise body.fail("a total_sequence_length that is no constant has no conversion: fix all shapes")
    room = body.shape(past)[2] if past else 0
    known = body.known(lengths)
    one = None if known is None or len(set(known.ravel().tolist())) != 1 else int(known.flat[0]) + 1
    counts = body.add("Add", body.reshape(lengths, batch, 1), body.constant(1, np.int32))
    form = _Form(
        batch,
        length,
        heads,
        groups,
        width // parts,
        room,
        int(number.flat[0]),
        counts,
        one,
        body.dtype(query),
    )
    if form.total < length or (not form.is_prompt and (not past or (batch > 1 and length > 1))):
        raise body.fail(
            f"{length} of {form.total} tokens in {batch} rows with a cache of {room} have no conversion"
        )
    return form


def _sides(body: Body, form: _Form, query: str, key: str, value: str) -> list[str]:
    """Queries, keys and values, each as [batch, heads, length, size]; they may come in one tensor."""
    counts = [form.heads, form.groups, form.groups]
    sides = [query, key, value]
    if not key:
        ends = (np.cumsum([0, *counts]) * form.size).tolist()
        sides = [body.part(query, start, stop) for start, stop in pairwise(ends)]
    return [by_head(body, one, count) for one, count in zip(sides, counts, strict=True)]


def _places(body: Body, form: _Form) -> str:
    """Places of the new tokens in their rows, [1 or batch, length] of int32."""
    own = body.constant(body.positions(form.length)[None], np.int32)
    return own if form.is_prompt else body.add("Add", own, _before(body, form))


def _before(body: Body, form: _Form) -> str:
    """Keys that each row has before the new ones, [batch, 1] of int32."""
    return body.add("Sub", form.lengths, body.constant(form.length, np.int32))


def _angles(body: Body, form: _Form, tables: tuple[str, str], positions: str) -> tuple[str, str]:
    """Cosines and sines for the new tokens, [1 or batch, 1, length, angles]."""
    if positions and form.is_prompt:
        # A prompt's tokens follow the first position.
        own = body.constant(body.positions(form.length)[None], np.int64)
        places = body.add("Add", own, body.reshape(body.part(body.reshape(positions, -1), 0, 1, 0), 1, 1))
    else:
        places = positions or _places(body, form)
    cosine, sine = (body.unsqueeze(body.add("Gather", one, places, axis=0), 1) for one in tables)
    return cosine, sine


def _kept(body: Body, form: _Form, new: str, past: str) -> str:
    """The cache on its way out: what each row had, the new tokens, and nothing behind them."""
    sizes = (form.batch, form.groups, form.size)
    if form.is_prompt:
        return _joined(body, [new, _nothing(body, sizes, form.keys - form.length, form.kind)])
    if form.fixed is not None:
        had = form.fixed - form.length
        parts = [body.part(past, 0, had, 2) if had < form.room else past, new]
        return _joined(body, [*parts, _nothing(body, sizes, form.keys - form.fixed, form.kind)])
    places = body.constant(body.positions(form.keys)[None], np.int32)
    before = _before(body, form)
    earlier = body.add("Less", places, before)
    if form.length == 1:
        old = _joined(body, [past, _nothing(body, sizes, form.keys - form.room, form.kind)])
        here, earlier = (body.unsqueeze(one, 1, 3) for one in (body.add("Equal", places, before), earlier))
        rest = body.add("Where", earlier, old, body.constant(0, form.kind))
        return body.add("Where", here, new, rest)
    # One row: elements of the cache, then of the new tokens, then one that is zero.
    inside = body.add("Less", places, form.lengths)
    moved = body.add("Add", body.add("Sub", places, before), body.constant(form.room, np.int32))
    last = body.constant(form.room + form.length, np.int32)
    indices = body.add("Where", earlier, places, body.add("Where", inside, moved, last))
    source = _joined(body, [past, new, _nothing(body, sizes, 1, form.kind)])
    return body.add("Gather", source, body.reshape(indices, form.keys), axis=2)


def _nothing(body: Body, sizes: tuple[int, int, int], count: int, kind: np.dtype) -> str:
    """So many keys of zeros; "" for none."""
    batch, groups, size = sizes
    if not count:
        return ""
    zero = body.constant(np.zeros([1, 1, 1, 1]), kind)
    return body.add("Expand", zero, body.numbers([batch, groups, count, size]))


def _joined(body: Body, parts: list[str]) -> str:
    """Keys one behind the other."""
    given = [one for one in parts if one]
    return body.add("Concat", *given, axis=2) if len(given) > 1 else given[0]


def _attended(body: Body, form: _Form, sides: tuple[str, str, str], bias: str, sink: str) -> str:
    """Attention as [batch, length, heads x size].

    Heads of queries that share one of keys are queries of that one, so that keys are not copied.
    """
    rows = form.shared * form.length
    query = body.reshape(sides[0], 0, form.groups, rows, form.size)
    heads = Heads(query, sides[1], sides[2], rows, form.keys, form.size)
    mask = _mask(body, form)
    masks = [_repeated(body, form, mask, 1) if body.attribute("causal", 1) else mask]
    if bias:
        masks.append(_repeated(body, form, _widened(body, form, bias), body.shape(bias)[1]))
    scores = scored(body, heads, form.kind, masks)
    if sink or body.attribute("smooth_softmax", 0) == 1:
        shape = [form.batch, form.groups, form.shared, form.length, 1]
        one = body.reshape(sink, 1, form.groups, form.shared, 1, 1) if sink else _zero(body, form)
        one = body.reshape(body.add("Expand", one, body.numbers(shape)), 0, 0, rows, 1)
        weights = body.add("Softmax", body.add("Concat", scores, one, axis=-1), axis=-1)
        weights = body.part(weights, 0, form.keys)
    else:
        weights = body.add("Softmax", scores, axis=-1)
    made = body.reshape(body.add("MatMul", weights, sides[2]), 0, form.heads, form.length, form.size)
    window = body.attribute("local_window_size", -1)
    if window > 0 and form.is_prompt and form.fixed is None:
        # Behind a row's end, a window may have no key in it.
        first = body.add("Sub", _places(body, form), body.constant(window - 1, np.int32))
        some = body.unsqueeze(body.add("Less", first, form.lengths), 1, 3)
        made = body.add("Where", some, made, body.constant(0, form.kind))
    return body.reshape(body.add("Transpose", made, perm=[0, 2, 1, 3]), 0, 0, -1)


def _zero(body: Body, form: _Form) -> str:
    return body.constant(np.zeros([1, 1, 1, 1, 1]), form.kind)


def _widened(body: Body, form: _Form, bias: str) -> str:
    """An addend of scores for every key of the cache; those behind the tokens are masked."""
    batch, heads, length, keys = body.shape(bias)
    if (length, keys) != (form.length, form.total):
        raise body.fail(f"an attention_bias of shape {[batch, heads, length, keys]} has no conversion")
    if keys == form.keys:
        return bias
    zero = body.constant(np.zeros([1, 1, 1, 1]), form.kind)
    more = body.add("Expand", zero, body.numbers([batch, heads, length, form.keys - keys]))
    return body.add("Concat", bias, more, axis=-1)


def _repeated(body: Body, form: _Form, addend: str, heads: int) -> str:
    """An addend [batch, 1 or heads, length, keys] for queries that are grouped by heads of keys."""
    if heads == form.heads:
        return body.reshape(addend, 0, form.groups, form.shared * form.length, form.keys)
    return addend if form.length == 1 or form.shared == 1 else _joined(body, [addend] * form.shared)


def _mask(body: Body, form: _Form) -> str:
    """Nothing for keys that count and a large negative number for others: [1 or batch, 1, length or 1, keys].

    Raises:
        ImportFailed: a window that no key is in.
    """
    window = body.attribute("local_window_size", -1)
    causal = body.attribute("causal", 1)
    if window == 0 or (not causal and window != -1):
        raise body.fail(f"local_window_size {window} with causal {causal} has no conversion")
    keys = body.constant(body.positions(form.keys)[None, None], np.int32)
    counts = body.add("Less", keys, body.unsqueeze(form.lengths, 1))
    if causal:
        places = body.unsqueeze(_places(body, form), 2)
        counts = body.add("And", counts, body.add("Not", body.add("Less", places, keys)))
        if window > 0:
            first = body.add("Sub", places, body.constant(window, np.int32))
            counts = body.add("And", counts, body.add("Less", first, keys))
    least = float(np.finfo(form.kind).min) / 2
    none, much = body.constant(0, form.kind), body.constant(least, form.kind)
    return body.add("Where", body.unsqueeze(counts, 1), none, much)


EXPANSIONS = {"GroupQueryAttention": _group_query}
