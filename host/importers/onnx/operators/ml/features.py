"""Operators of the domain ai.onnx.ml that prepare features, and counts of n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    constant_value,
    dtype_of,
    scalar,
    shape_of,
)
from host.importers.onnx.operators.selection import wrap_negative

# Elements of the table of n-grams, and comparisons of one row with all of them.
_MOST_GRAMS, _MOST_COMPARISONS = 1 << 20, 1 << 30


def _array_feature_extractor(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Columns of the last dimension."""
    shape = shape_of(context, inputs[0])
    count = int(np.prod(shape_of(context, inputs[1]), dtype=np.int64))
    flat = context.emit(relax.op.reshape(inputs[1], [count]))
    values = constant_value(inputs[1])
    indices = constant(values.reshape(-1)) if values is not None else flat
    indices = wrap_negative(context, indices, shape[-1])
    result = relax.op.take(inputs[0], indices, len(shape) - 1, mode="clip")
    return relax.op.reshape(context.emit(result), [1, count]) if len(shape) == 1 else result


def _binarizer(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    dtype = dtype_of(inputs[0])
    threshold = scalar(attributes.get("threshold", 0.0), dtype)
    return relax.op.astype(relax.op.greater(inputs[0], threshold), dtype)


def _scaler(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """(x - offset) scale, of single precision whatever comes in."""
    value = context.emit(relax.op.astype(inputs[0], "float32"))
    offset, scale = (
        constant(np.asarray(attributes.get(name, (default,)), np.float32))
        for name, default in (("offset", 0.0), ("scale", 1.0))
    )
    return relax.op.multiply(context.emit(relax.op.subtract(value, offset)), scale)


def _tf_idf(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """How often each n-gram of a table is in a row, with up to so many elements left out between its own."""
    if "pool_int64s" not in attributes:
        raise context.fail("n-grams of text have no conversion")
    shape = shape_of(context, inputs[0])
    if not shape[-1] or 0 in shape:
        return relax.op.zeros(context.output_shape(), "float32")
    grams, lengths = _grams(context, attributes)
    skips = int(attributes["max_skip_count"]) + 1
    columns, repeats, longest = grams.shape
    if skips < 1 or grams.size * skips * shape[-1] > _MOST_COMPARISONS:
        raise context.fail("its table of n-grams is too large")
    rows = shape[0] if len(shape) == 2 else 1
    data = context.emit(relax.op.reshape(inputs[0], [rows, shape[-1]]))

    def compute(row: te.Tensor, table: te.Tensor, sizes: te.Tensor) -> te.Tensor:
        again, skip, start = (
            te.reduce_axis((0, extent), name)
            for name, extent in (("again", repeats), ("skip", skips), ("start", shape[-1]))
        )

        def element(n: Any, column: Any) -> Any:
            size = sizes(column, again)
            last = start + (size - 1) * (skip + 1)
            # One element has no gaps: it counts once, not once for every width of them.
            found = [size > 0, last < shape[-1], tirx.any(size > 1, skip == 0)]
            for place in range(longest):
                here = tirx.min(start + place * (skip + 1), shape[-1] - 1)
                same = tirx.Cast("int64", row(n, here)) == table(column, again, place)
                found.append(tirx.any(size <= place, same))
            one = tirx.Select(tirx.all(*found), tirx.const(1.0, "float32"), tirx.const(0.0, "float32"))
            return te.sum(one, axis=[again, skip, start])

        return te.compute((rows, columns), element, name="count")

    counts = context.compute(compute, data, constant(grams), constant(lengths))
    return relax.op.reshape(_weighted(context, counts, attributes), [*shape[:-1], columns])


def _grams(context: Context, attributes: Attributes) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams of each column (C, R, longest), and their lengths (C, R), 0 where there is none."""
    pool = np.asarray(attributes["pool_int64s"], np.int64)
    starts, indexes = list(attributes["ngram_counts"]), list(attributes["ngram_indexes"])
    shortest, longest = int(attributes["min_gram_length"]), int(attributes["max_gram_length"])
    ends = [*starts[1:], len(pool)]
    if (
        not indexes
        or min(indexes) < 0
        or any(not 0 <= a <= b <= len(pool) for a, b in zip(starts, ends, strict=True))
    ):
        raise context.fail("its lists of n-grams do not fit together")
    found: dict[int, list[np.ndarray]] = {}
    number = 0
    for size, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        for gram in pool[start:end][: (end - start) // size * size].reshape(-1, size):
            if number >= len(indexes):
                raise context.fail("it has more n-grams than indices")
            if shortest <= size <= longest:
                found.setdefault(indexes[number], []).append(gram)
            number += 1
    columns, repeats = max(indexes) + 1, max(map(len, found.values()), default=1)
    width = max((len(gram) for grams in found.values() for gram in grams), default=1)
    if columns * repeats * width > _MOST_GRAMS:
        raise context.fail("its table of n-grams is too large")
    table, lengths = np.zeros((columns, repeats, width), np.int64), np.zeros((columns, repeats), np.int64)
    for column, grams in found.items():
        for place, gram in enumerate(grams):
            table[column, place, : len(gram)] = gram
            lengths[column, place] = len(gram)
    return table, lengths


def _weighted(context: Context, counts: Any, attributes: Attributes) -> Any:
    """Counts times the weights of their n-grams, which lie in the order of the table, not of the columns."""
    mode, weights, indexes = attributes["mode"], attributes.get("weights"), attributes["ngram_indexes"]
    if mode == b"IDF":
        counts = context.emit(relax.op.minimum(counts, scalar(1.0, "float32")))
    if mode == b"TF" or not weights:
        return counts
    if len(weights) != len(indexes) or len(set(indexes)) != len(indexes):
        raise context.fail(f"it has {len(weights)} weights for {len(set(indexes))} columns")
    factors = np.zeros(shape_of(context, counts)[1], np.float32)
    factors[list(indexes)] = weights
    return context.emit(relax.op.multiply(counts, constant(factors)))


CONVERTERS: dict[str, Converter] = {
    "ai.onnx.ml.ArrayFeatureExtractor": _array_feature_extractor,
    "ai.onnx.ml.Binarizer": _binarizer,
    "ai.onnx.ml.Scaler": _scaler,
    "TfIdfVectorizer": _tf_idf,
}
