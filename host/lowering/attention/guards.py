"""Guards of attention's weights: rows of zeros where all scores are minus infinity and softmax gives NaN.

torch writes `scaled_dot_product_attention` with this guard. An exported program compares the scores with
minus infinity, row by row; an ONNX file asks which weights are NaN. The numbers that a model is given are
assumed to be finite, except masks, which may hold minus infinity. Products are then finite, and the masks
alone decide which rows are zeros. The guard is removed where each row of the masks is known to keep a score.
Otherwise the guard moves behind the product with the values, where it reads the masks in place of the scores.
In both cases the products and softmax are left as attention without a guard.
"""

from __future__ import annotations

import math

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Node, Shape, Value, constant


def without_guard(builder: Builder, node: Node) -> Value | None:
    """The weights of a guard that cannot hold; `node` is the choice between zeros and weights."""
    weights = _guarded(node)
    if weights is None:
        return None
    masks = _masks(builder, _softmax_input(weights))
    if masks is None or (masks and not _keeps_each_row(_sum(builder, masks))):
        return None
    return weights


def guard_behind_product(builder: Builder, node: Node) -> Value | None:
    """The product of unguarded weights, then zeros in masked rows; `node` is a product of guarded weights."""
    if node.op != "matmul" or len(node.output.shape) < 2:
        return None
    guard = _seen(node.inputs[0]).producer
    weights = None if guard is None else _guarded(guard)
    if weights is None:
        return None
    scores = _softmax_input(weights)
    masks = _masks(builder, scores)
    # A product that repeats the weights has other rows than they have.
    if not masks or math.prod(scores.shape[:-1]) != math.prod(node.output.shape[:-1]):
        return None
    mask = _sum(builder, masks)
    left = builder.reshape(weights, node.inputs[0].shape)
    product = builder.copy(node, (left, node.inputs[1]))[0]
    shape = (*scores.shape[:-1], node.output.shape[-1])
    zero = constant(0.0, product.dtype)
    rows = [_rows_of_lowest(builder, mask), zero, builder.reshape(product, shape)]
    return builder.reshape(builder.one("where", rows, shape, product.dtype), node.output.shape)


def _guarded(node: Node) -> Value | None:
    """The softmax whose rows of minus infinity a choice replaces by zeros."""
    if node.op != "where":
        return None
    condition, zeros, weights = node.inputs
    made = weights.producer
    if made is None or made.op != "softmax" or weights.shape != node.output.shape:
        return None
    if zeros.data is None or zeros.data.any():
        return None
    test = _seen(condition).producer
    if test is not None and test.op == "isnan":
        return weights if _seen(test.inputs[0]) is _seen(weights) else None
    scores = _compared_with_lowest(condition)
    same = scores is not None and _seen(scores) is _seen(made.inputs[0])
    return weights if same else None


def _softmax_input(weights: Value) -> Value:
    assert weights.producer is not None
    return _seen(weights.producer.inputs[0])


def _seen(value: Value) -> Value:
    """The value before views that keep the last dimension."""
    while (made := value.producer) is not None and made.op == "reshape":
        source = made.inputs[0]
        if not source.shape or not value.shape or source.shape[-1] != value.shape[-1]:
            break
        value = source
    return value


def _compared_with_lowest(condition: Value) -> Value | None:
    """The scores of which a condition says whether a row is minus infinity throughout.

    That is "not any(not(scores == -inf))" or "all(scores == -inf)", truth values being numbers in between.
    """
    value, negated, reduction = condition, [False, False], ""
    while (made := value.producer) is not None:
        if made.op == "logical_not":
            negated[reduction != ""] ^= True
        elif made.op in ("max", "min") and not reduction and _is_along_rows(made):
            reduction = made.op
        elif made.op == "equal":
            scores, other = sorted(made.inputs, key=lambda one: one.is_constant)
            of_rows = (reduction, negated) in (("max", [True, True]), ("min", [False, False]))
            return scores if of_rows and other.scalar() == -math.inf else None
        elif made.op not in ("cast", "reshape"):
            return None
        value = made.inputs[0]
    return None


def _is_along_rows(reduction: Node) -> bool:
    """Whether it reduces the last dimension to one element."""
    last = len(reduction.inputs[0].shape) - 1
    return bool(reduction.attrs["keepdims"]) and reduction.attrs["axes"] == (last,)


def _masks(builder: Builder, scores: Value) -> list[Value] | None:
    """What is added to finite scores and may be minus infinity; None if the scores are not known to be so."""
    masks: list[Value] = []
    value = scores
    while (made := value.producer) is not None:
        if made.op == "matmul":
            return masks
        if made.op == "reshape":
            value = made.inputs[0]
            continue
        if made.op == "multiply":
            source, factor = sorted(made.inputs, key=lambda one: one.is_constant)
            number = factor.scalar()
            if number is None or not 0 < number < math.inf:
                return None
        elif made.op == "add":
            source, mask = sorted(made.inputs, key=lambda one: not _is_scores(one, value.shape))
            # A row of a constant is masked in any view; of others, in that of all scores only.
            if mask.data is None and value.shape != scores.shape:
                return None
            if mask.data is None or not np.isfinite(mask.data).all():
                masks.append(mask)
        elif made.op == "where":
            return _chosen(builder, made, scores, masks)
        else:
            return None
        if source.shape != value.shape:
            return None
        value = source
    return None


def _chosen(builder: Builder, made: Node, scores: Value, masks: list[Value]) -> list[Value] | None:
    """The masks where a number takes the place of scores that are masked by nothing else."""
    condition, *choices = made.inputs
    source, other = sorted(choices, key=lambda one: one.is_constant)
    number = other.scalar()
    if number is None or masks or source.shape != made.output.shape or _masks(builder, source) != []:
        return None
    if math.isfinite(number):
        return []
    if number > 0 or made.output.shape != scores.shape:
        return None
    zero = constant(0.0, other.dtype)
    both = (zero, other) if source is choices[0] else (other, zero)
    return [builder.one("where", [condition, *both], condition.shape, other.dtype)]


def _is_scores(value: Value, shape: Shape) -> bool:
    """Whether a value of this shape comes from a product, and not from a choice of masks."""
    while value.shape == shape and (made := value.producer) is not None:
        if made.op == "matmul":
            return True
        if made.op == "reshape":
            value, shape = made.inputs[0], made.inputs[0].shape
            continue
        inputs = made.inputs[1:] if made.op == "where" else made.inputs
        if made.op not in ("multiply", "add", "where"):
            return False
        return any(_is_scores(one, shape) for one in inputs)
    return False


def _sum(builder: Builder, masks: list[Value]) -> Value:
    total = masks[0]
    for mask in masks[1:]:
        total = builder.binary("add", total, mask)
    return total


def _keeps_each_row(mask: Value) -> bool:
    """Whether a mask is known, and each row has a score that it does not exclude."""
    return mask.data is not None and bool(
        mask.shape and (mask.data < np.inf).all() and (mask.data > -np.inf).any(axis=-1).all()
    )


def _rows_of_lowest(builder: Builder, mask: Value) -> Value:
    """Which rows (..., M, 1) of a mask (..., M, N) are minus infinity throughout."""
    lowest = builder.one("equal", [mask, constant(-math.inf, mask.dtype)], mask.shape, "bool")
    shape = (*mask.shape[:-1], 1)
    attrs = {"axes": (len(mask.shape) - 1,), "keepdims": True}
    throughout = builder.one("min", [builder.cast(lowest, "int8")], shape, "int8", **attrs)
    return builder.cast(throughout, "bool")
