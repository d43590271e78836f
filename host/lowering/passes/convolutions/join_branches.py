"""Convolutions of one input whose results are added become one convolution.

Networks that are trained with several branches, which are to be merged for use (RepVGG, MobileOne, FastViT),
are often exported as they were trained:

conv(x, V) + conv(x, W) = conv(x, V + W), where the smaller kernel has zeros around it

A convolution of one position is a dense product here, a branch like any other. A branch that only scales
channels, as the norm of an identity does, goes into the tap at its own position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Shape, Value, constant, read_once
from host.lowering.rebuild import rebuild

# What a convolution is described by where nothing else is asked of it.
_PLAIN = {"strides", "padding", "dilation", "groups"}
# Sums within sums, each the term of another, that are taken apart. What lies deeper was joined before.
_DEEPEST = 16


@dataclass(frozen=True)
class _Branch:
    """A linear function of a tensor's positions.

    Attributes:
        data: the input, as the operation reads it.
        weight: [*K, C / groups, O]; without K for a dense product.
        attrs: of a convolution; empty for a dense product.
        shape: of the result.
    """

    data: Value
    weight: np.ndarray
    attrs: dict[str, Any]
    shape: Shape

    @property
    def kernel(self) -> Shape:
        """Taps along each dimension of an image; () for a dense product."""
        return self.weight.shape[:-2]

    @property
    def before(self) -> tuple[int, ...]:
        """Padding in front of each dimension."""
        padding: tuple[int, ...] = self.attrs["padding"]
        return padding[: len(self.kernel)]


def join_branches(graph: Graph) -> Graph:
    """An equal graph, but for rounding, in which sums of such convolutions and products are one of them.

    Args:
        graph: with scales folded into weights, before these are packed; not for a range of lengths, since
            what lies behind an image depends on its size.
    """
    private = read_once(graph)
    # New values that one node reads.
    single: set[Value] = set()

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        made = _joined(builder, node, inputs, single) if node.op == "add" else None
        outputs = builder.copy(node, inputs) if made is None else (made,)
        for old, new in zip(node.outputs, outputs, strict=True):
            if private(old):
                single.add(new)
            else:
                single.difference_update((new, _without_views(new)))
        return outputs

    return rebuild(graph, rule)


def _joined(builder: Builder, node: Node, inputs: Sequence[Value], single: set[Value]) -> Value | None:
    """The sum with branches of one input joined; None where there are none."""
    shape = node.output.shape
    if node.output.dtype != "float32" or any(_is_other(value, node.output) for value in inputs):
        return None
    terms = [term for value in inputs for term in _terms(value, single)]
    branches, others = _joined_branches(terms, single)
    if len(branches) + len(others) == len(terms):
        return None
    return _sum(builder, [*(_made(builder, one, single) for one in branches), *others], shape, single)


def _joined_branches(terms: Sequence[Value], single: set[Value]) -> tuple[list[_Branch], list[Value]]:
    """The terms as branches, joined where they read one input, and what is no branch."""
    branches: list[_Branch] = []
    others: list[Value] = []
    # Scales last: they need a branch to go into.
    for found, joins in ((_branch, _both), (_scale, _with_scale)):
        left = terms if found is _branch else others
        others = []
        for term in left:
            branch = found(term, single)
            pairs = ((at, joins(known, branch)) for at, known in enumerate(branches) if branch is not None)
            place, both = next(((at, both) for at, both in pairs if both is not None), (-1, None))
            if both is not None:
                branches[place] = both
            elif branch is not None and found is _branch:
                branches.append(branch)
            else:
                others.append(term)
    return branches, others


def _is_other(value: Value, output: Value) -> bool:
    """Whether a term is neither of the sum's size nor a constant of its channels."""
    channels = output.shape[-1:]
    if value.size == output.size:
        return value.shape[-1:] != channels
    return not value.is_constant or (value.size > 1 and not value.shape[-1:] == (value.size,) == channels)


def _terms(value: Value, single: set[Value], depth: int = _DEEPEST) -> list[Value]:
    """What is added up to make a value, seen with any rows."""
    inner = _without_views(value, single)
    node = inner.producer
    if inner not in single or node is None or node.op != "add" or not depth:
        return [value]
    if any(_is_other(one, inner) for one in node.inputs):
        return [value]
    return [term for one in node.inputs for term in _terms(one, single, depth - 1)]


def _without_views(value: Value, single: set[Value] | None = None) -> Value:
    """A value before it is seen with other dimensions in front of its last one."""
    while single is None or value in single:
        node = value.producer
        if node is None or node.op != "reshape" or node.inputs[0].shape[-1:] != value.shape[-1:]:
            break
        value = node.inputs[0]
    return value


def _branch(value: Value, single: set[Value]) -> _Branch | None:
    """A term as a branch, where nothing else reads it."""
    value = _without_views(value, single)
    node = value.producer
    if value not in single or node is None or node.op not in ("conv", "dense"):
        return None
    weight = node.inputs[1].data
    if weight is None or weight.dtype != np.float32 or value.dtype != "float32":
        return None
    if node.op == "conv" and set(node.attrs) != _PLAIN:
        return None
    if node.op == "dense" and (node.attrs or weight.ndim != 2):
        return None
    return _Branch(node.inputs[0], weight, dict(node.attrs), value.shape)


def _scale(value: Value, single: set[Value]) -> _Branch | None:
    """A term that multiplies each channel by a number, where nothing else reads it, as a product."""
    value = _without_views(value, single)
    node = value.producer
    if value not in single or node is None or node.op != "multiply" or value.dtype != "float32":
        return None
    data, scale = sorted(node.inputs, key=lambda one: one.is_constant)
    channels = value.shape[-1:]
    if scale.data is None or data.is_constant or data.shape != value.shape:
        return None
    if scale.size > 1 and not scale.shape[-1:] == (scale.size,) == channels:
        return None
    numbers = np.broadcast_to(scale.data.reshape(-1), channels)
    return _Branch(data, np.ascontiguousarray(numbers), {}, value.shape)


def _with_scale(one: _Branch, other: _Branch) -> _Branch | None:
    """A branch with what scales the channels of the same tensor as a part of its weight."""
    *_, inner, channels = one.weight.shape
    if _without_views(one.data) is not _without_views(other.data) or other.shape[-1] != channels:
        return None
    places = np.arange(channels)
    if not one.kernel:
        weight = one.weight.copy()
        weight[places, places] += other.weight
        return _Branch(one.data, weight, one.attrs, one.shape)
    if one.data.shape != one.shape or set(one.attrs["strides"]) != {1} or _dilated(one):
        return None
    kernel = (1,) * len(one.kernel)
    weight = np.zeros((*kernel, inner, channels), np.float32)
    weight[..., places % inner, places] = other.weight
    attrs = {**one.attrs, "padding": (0,) * (2 * len(kernel))}
    return _with_one_kernel(one, _Branch(one.data, weight, attrs, one.shape))


def _both(one: _Branch, other: _Branch) -> _Branch | None:
    """Two branches as one, if they read one tensor alike."""
    if _without_views(one.data) is not _without_views(other.data) or one.shape[-1] != other.shape[-1]:
        return None
    if not one.kernel or not other.kernel:
        return _with_product(one, other)
    same = ("strides", "groups")
    if one.shape != other.shape or one.data.shape != other.data.shape:
        return None
    if any(one.attrs[name] != other.attrs[name] for name in same) or len(one.kernel) != len(other.kernel):
        return None
    if any(_dilated(branch) for branch in (one, other)):
        return None
    return _with_one_kernel(one, other)


def _with_product(one: _Branch, other: _Branch) -> _Branch | None:
    """A dense product and another branch as one."""
    product, branch = (other, one) if one.kernel else (one, other)
    if not branch.kernel:
        if product.data.shape != branch.data.shape:
            return None
        return _Branch(one.data, one.weight + other.weight, one.attrs, one.shape)
    every = branch.data.shape[:-1] == branch.shape[:-1] and set(branch.attrs["strides"]) == {1}
    if not every or branch.attrs["groups"] != 1 or _dilated(branch):
        return None
    kernel = (1,) * len(branch.kernel)
    attrs = {**branch.attrs, "padding": (0,) * (2 * len(kernel))}
    weight = product.weight.reshape(*kernel, *product.weight.shape)
    return _with_one_kernel(branch, _Branch(branch.data, weight, attrs, branch.shape))


def _dilated(branch: _Branch) -> bool:
    return any(d > 1 and k > 1 for d, k in zip(branch.attrs["dilation"], branch.kernel, strict=True))


def _with_one_kernel(one: _Branch, other: _Branch) -> _Branch | None:
    """Two convolutions as one whose kernel covers both, unless that has more taps than the two."""
    before = tuple(map(max, one.before, other.before))
    branches = (one, other)
    kernel = tuple(
        max(branch.kernel[axis] - branch.before[axis] for branch in branches) + front
        for axis, front in enumerate(before)
    )
    if math.prod(kernel) > sum(math.prod(branch.kernel) for branch in branches):
        return None
    weight = np.zeros((*kernel, *one.weight.shape[-2:]), np.float32)
    for branch in branches:
        starts = (front - its for front, its in zip(before, branch.before, strict=True))
        places = tuple(slice(start, start + size) for start, size in zip(starts, branch.kernel, strict=True))
        weight[places] += branch.weight
    strides = one.attrs["strides"]
    extents = zip(one.data.shape[1:-1], one.shape[1:-1], kernel, before, strides, strict=True)
    # What the last window reads behind the image.
    after = tuple(
        max(0, (made - 1) * stride + taps - size - front) for size, made, taps, front, stride in extents
    )
    attrs = {**one.attrs, "padding": (*before, *after), "dilation": (1,) * len(kernel)}
    return _Branch(one.data, weight, attrs, one.shape)


def _made(builder: Builder, branch: _Branch, single: set[Value]) -> Value:
    """The operation of a branch."""
    op = "conv" if branch.kernel else "dense"
    result = builder.one(op, [branch.data, constant(branch.weight)], branch.shape, "float32", **branch.attrs)
    single.add(result)
    return result


def _sum(builder: Builder, terms: Sequence[Value], shape: Shape, single: set[Value]) -> Value:
    """The terms added up, constants last."""

    def seen(value: Value) -> Value:
        built = len(builder.nodes)
        view = builder.reshape(value, shape)
        single.update([view] if len(builder.nodes) > built else [])
        return view

    tensors = [one for one in terms if one.data is None or one.size > shape[-1]]
    constants = [one.data for one in terms if one.data is not None and one.size <= shape[-1]]
    result = seen(tensors[0])
    for other in tensors[1:]:
        result = builder.binary("add", result, seen(other))
        single.add(result)
    if not constants:
        return result
    bias = np.sum([np.broadcast_to(one.reshape(-1), shape[-1:]) for one in constants], axis=0)
    return builder.binary("add", result, constant(bias.astype(np.float32)))
