"""Norms over the last axis, with what ONNX Runtime adds in front of them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from host.importers.onnx.contributed.body import Body


def normalised(
    body: Body, value: str, scale: str, shift: str, epsilon: float, kind: np.dtype, *, centred: bool
) -> str:
    """Write a norm over the last axis.

    Args:
        body: gets the nodes.
        value: what is normalised.
        scale: factor of each element of the axis.
        shift: addend of each, "" for none.
        epsilon: added to the variance.
        kind: type of the elements.
        centred: whether the mean is taken away first; otherwise the square mean takes the variance's place.
    """
    if centred:
        value = body.add("Sub", value, body.mean(value))
    variance = body.add("Add", body.mean(body.add("Mul", value, value)), body.constant(epsilon, kind))
    made = body.add("Mul", body.add("Div", value, body.add("Sqrt", variance)), scale)
    return body.add("Add", made, shift) if shift else made


def _simplified(body: Body) -> None:
    """The root mean square norm."""
    x, scale = body.inputs(2)
    body.without_outputs(1)
    axis = body.attribute("axis", -1)
    if axis not in (-1, len(body.shape(x)) - 1):
        raise body.fail("a norm over more than the last axis has no conversion")
    epsilon, kind = body.attribute("epsilon", 1e-5), body.dtype(scale)
    body.set_output(normalised(body, x, scale, "", epsilon, kind, centred=False))


def _with_skip(body: Body) -> None:
    x, skip, scale, shift, bias = body.inputs(5)
    _norm_of_sum(body, [x, skip, bias], scale, shift, centred=True)


def _simplified_with_skip(body: Body) -> None:
    x, skip, scale, bias = body.inputs(4)
    _norm_of_sum(body, [x, skip, bias], scale, "", centred=False)


def _norm_of_sum(body: Body, parts: list[str], scale: str, shift: str, *, centred: bool) -> None:
    body.without_outputs(1, 2)
    total = body.add("Add", parts[0], parts[1])
    total = body.add("Add", total, parts[2]) if parts[2] else total
    epsilon = body.attribute("epsilon", 1e-12 if centred else 1e-5)
    kind = body.dtype(scale)
    body.set_output(normalised(body, total, scale, shift, epsilon, kind, centred=centred))
    body.set_output(total, 3)


def embedded(
    body: Body, tables: list[str], scale: str, shift: str, mask: str, positions: str, kind: np.dtype
) -> None:
    """Write the sum of embeddings and its norm.

    Args:
        body: gets the nodes; its first inputs are the tokens and their segments.
        tables: of words, positions and segments, as rows of floats that a node `Gather` may read.
        scale: of the norm.
        shift: of the norm.
        mask: ones for the tokens that count, "" for none.
        positions: of the tokens, "" for 0, 1, 2 and so on.
        kind: type of the elements.
    """
    tokens, segments = body.inputs(2)
    batch, length = body.shape(tokens)
    total = body.add("Gather", tables[0], tokens, axis=0)
    place = positions or body.constant(body.positions(length), np.int64)
    total = body.add("Add", total, body.add("Gather", tables[1], place, axis=0))
    if tables[2] and segments:
        total = body.add("Add", total, body.add("Gather", tables[2], segments, axis=0))
    epsilon = body.attribute("epsilon", 1e-12)
    body.set_output(normalised(body, total, scale, shift, epsilon, kind, centred=True))
    if body.has_output(1):
        body.set_output(_lengths(body, mask, batch), 1)
    body.set_output(total, 2)


def _lengths(body: Body, mask: str, batch: int) -> str:
    """The number of tokens that count in each row."""
    if not mask:
        return body.constant(np.zeros(batch), np.int32)
    ones = body.add("Equal", mask, body.constant(1, body.dtype(mask)))
    mask = body.add("Cast", ones, to=TensorProto.INT32)
    if body.opset >= 13:
        return body.add("ReduceSum", mask, body.numbers([1]), keepdims=0)
    return body.add("ReduceSum", mask, axes=[1], keepdims=0)


def _embedding(body: Body) -> None:
    _, _, words, places, kinds, scale, shift, mask, positions = body.inputs(9)
    embedded(body, [words, places, kinds], scale, shift, mask, positions, body.dtype(scale))


EXPANSIONS = {
    "SimplifiedLayerNormalization": _simplified,
    "SkipLayerNormalization": _with_skip,
    "SkipSimplifiedLayerNormalization": _simplified_with_skip,
    "EmbedLayerNormalization": _embedding,
}
