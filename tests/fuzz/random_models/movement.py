"""Operators that only move elements, or select among them."""

from __future__ import annotations

import numpy as np

from tests.fuzz.random_models.draw import SIZES, Draw, Operator, Value


def _transpose(d: Draw, x: Value) -> None:
    d.need(x.rank > 1)
    d.add("Transpose", [x.name], perm=d.rng.sample(range(x.rank), x.rank))


def _reshape(d: Draw, x: Value) -> None:
    factors = [p for size in x.shape for p in _factors(size)]
    if d.rng.random() < 0.3:
        d.rng.shuffle(factors)
    shape = [1] * d.rng.randint(1, 5)
    places = sorted(d.rng.randrange(len(shape)) for _ in factors)
    for place, factor in zip(places, factors, strict=True):
        shape[place] *= factor
    d.add("Reshape", [x.name, d.constant(shape)])


def _factors(number: int) -> list[int]:
    for prime in range(2, number):
        if number % prime == 0:
            return [prime, *_factors(number // prime)]
    return [number] if number > 1 else []


def _ones(d: Draw, x: Value) -> None:
    units = [axis for axis, size in enumerate(x.shape) if size == 1]
    if units and d.rng.random() < 0.5:
        d.add("Squeeze", [x.name, d.constant(d.rng.sample(units, d.rng.randint(1, len(units))))])
    else:
        d.need(x.rank < 5)
        d.add("Unsqueeze", [x.name, d.constant([d.rng.randrange(x.rank + 1)])])


def _slice(d: Draw, x: Value) -> None:
    d.need(x.rank > 0)
    axes = d.rng.sample(range(x.rank), d.rng.randint(1, x.rank))
    starts, ends, steps = [], [], []
    for axis in axes:
        size, step = x.shape[axis], d.pick(1, 1, 1, 2, 3, -1, -1, -2)
        a, b = sorted(d.rng.sample(range(size + 1), 2))
        if step < 0:
            a, b = b - 1, (a - 1 if a else -size - 1)
        starts.append(a)
        ends.append(b)
        steps.append(step)
    d.add("Slice", [x.name, *map(d.constant, (starts, ends, axes, steps))])


def _pad(d: Draw, x: Value) -> None:
    d.need(x.rank > 0 and x.dtype in ("float32", "int32", "int64"))
    mode = d.pick("constant", "constant", "edge", "reflect", "wrap")
    most = [3 if mode in ("constant", "edge") else min(3, size - 1) for size in x.shape]
    pads = [d.pick(0, d.rng.randint(0, bound)) for bound in (*most, *most)]
    values = [d.constant(d.array((), x.dtype))] if mode == "constant" and d.pick(True, False) else []
    d.add("Pad", [x.name, d.constant(pads), *values], mode=mode)


def _concat(d: Draw, x: Value) -> None:
    axis = d.axis(x)
    fits = [
        one.name
        for one in d.values
        if one.dtype == x.dtype
        and one.rank == x.rank
        and all(a == b for i, (a, b) in enumerate(zip(one.shape, x.shape, strict=True)) if i != axis % x.rank)
    ]
    parts = [d.rng.choice(fits) for _ in range(d.rng.randint(1, 3))]
    shape = list(x.shape)
    shape[axis] = d.pick(*SIZES[:8])
    parts.append(d.pick(x.name, d.weight(*shape, like=x)))
    d.rng.shuffle(parts)
    d.add("Concat", parts, axis=axis)


def _split(d: Draw, x: Value) -> None:
    axis = d.axis(x)
    d.need(x.shape[axis] > 2)
    cuts = sorted(d.rng.sample(range(1, x.shape[axis]), 2))
    sizes = [cuts[0], cuts[1] - cuts[0], x.shape[axis] - cuts[1]]
    d.add("Split", [x.name, d.constant(sizes)], 3, axis=axis)


def _tile(d: Draw, x: Value) -> None:
    d.need(x.rank > 0)
    repeats = [d.pick(1, d.rng.randint(1, 9)) for _ in x.shape]
    d.add("Tile", [x.name, d.constant(repeats)])


def _expand(d: Draw, x: Value) -> None:
    wide = [d.pick(*SIZES) if size == 1 else size for size in x.shape]
    d.add("Expand", [x.name, d.constant([*d.pick([], [2], [3, 1]), *wide])])


def _gather(d: Draw, x: Value) -> None:
    axis = d.axis(x)
    size = x.shape[axis]
    if d.rng.random() < 0.6:
        shape = [d.pick(*SIZES[:12]) for _ in range(d.rng.randrange(3))]
        d.add("Gather", [x.name, d.constant(d.numbers.integers(-size, size, shape))], axis=axis)
        return
    shape = list(x.shape)
    shape[axis] = d.pick(*SIZES)
    d.add("GatherElements", [x.name, d.constant(d.numbers.integers(-size, size, shape))], axis=axis)


def _gather_points(d: Draw, x: Value) -> None:
    d.need(x.rank > 1)
    depth = d.rng.randint(1, x.rank)
    shape = [d.pick(*SIZES[:12]) for _ in range(d.rng.randint(1, 2))]
    columns = [d.numbers.integers(-size, size, shape) for size in x.shape[:depth]]
    d.add("GatherND", [x.name, d.constant(np.stack(columns, -1))])


def _scatter(d: Draw, x: Value) -> None:
    d.need(x.rank > 0 and x.dtype in ("float32", "int32"))
    axis = d.rng.randrange(x.rank)
    shape = [d.rng.randint(1, size) for size in x.shape]
    # No place twice along the axis: which write wins is left to each engine.
    along = d.numbers.permutation(x.shape[axis])[: shape[axis]]
    places = np.broadcast_to(np.expand_dims(along, [i for i in range(x.rank) if i != axis]), shape)
    d.add("ScatterElements", [x.name, d.constant(places.copy()), d.weight(*shape, like=x)], axis=axis)


def _triangle(d: Draw, x: Value) -> None:
    d.need(x.rank > 1 and x.dtype in ("float32", "int64"))
    shift = d.constant(np.array(d.rng.randint(-3, 3), np.int64))
    d.add("Trilu", [x.name, shift], upper=d.pick(0, 1))


def _reverse(d: Draw, x: Value) -> None:
    d.need(x.rank > 1 and x.dtype in ("float32", "int64"))
    lengths = d.constant(d.numbers.integers(1, x.shape[0] + 1, x.shape[1]))
    d.add("ReverseSequence", [x.name, lengths], time_axis=0, batch_axis=1)


def _select(d: Draw, x: Value) -> None:
    d.need(x.dtype in ("float32", "int32", "int64", "uint8"))
    kept = d.rng.randrange(x.rank + 1)
    condition = d.constant(d.array([d.pick(1, size) for size in x.shape[kept:]], "bool"))
    d.add("Where", [condition, x.name, d.other(x)])


MOVES: tuple[Operator, ...] = (
    _transpose,
    _reshape,
    _ones,
    _slice,
    _pad,
    _concat,
    _split,
    _tile,
    _expand,
    _gather,
    _gather_points,
    _scatter,
    _triangle,
    _reverse,
    _select,
)
