"""Layer norm and RMS norm as several operations, found by how they are written."""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value
from host.lowering.ops.forms import reduced_dims


def _over_root(node: Node) -> tuple[Value, Value] | None:
    """D and u where `node` is d / sqrt(u) or d * rsqrt(u)."""
    if node.op == "divide":
        root = node.inputs[1].producer
        return (node.inputs[0], root.inputs[0]) if root is not None and root.op == "sqrt" else None
    if node.op == "multiply":
        for d, other in (node.inputs, node.inputs[::-1]):
            root = other.producer
            if root is not None and root.op == "rsqrt":
                return d, root.inputs[0]
            if root is not None and root.op in ("reciprocal", "divide"):
                inner = root.inputs[-1].producer
                one = root.op == "reciprocal" or root.inputs[0].scalar() == 1.0
                if one and inner is not None and inner.op == "sqrt":
                    return d, inner.inputs[0]
    return None


def norm(builder: Builder, node: Node) -> Value | None:
    """(x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon)."""
    parts = _over_root(node)
    if parts is None or not node.output.is_float or parts[0].shape != node.output.shape:
        return None
    d, under = parts
    if under.producer is None or under.producer.op != "add":
        return None
    for spread, epsilon in (under.producer.inputs, under.producer.inputs[::-1]):
        number, mean = epsilon.scalar(), spread.producer
        if number is None or mean is None or mean.op not in ("mean", "variance"):
            continue
        dims = reduced_dims(mean, mean.inputs[0])
        if dims is None:
            continue
        x = _centred_source(d, dims)
        if x is not None and _is_variance(mean, d, x):
            return builder.unary("layer_norm", x, dims=dims, epsilon=number)
        if mean.op == "mean" and _is_square(mean.inputs[0], d):
            return builder.unary("rms_norm", d, dims=dims, epsilon=number)
    return None


def norm_as_scale_and_shift(builder: Builder, node: Node) -> Value | None:
    """X r - mean r with r = 1 / sqrt(variance + epsilon): layer norm written as BatchNorm is."""
    if node.op not in ("add", "subtract") or not node.output.is_float:
        return None
    for first, second in (node.inputs, node.inputs[::-1]) if node.op == "add" else (node.inputs,):
        scaled, shift = first.producer, second.producer
        if node.op == "add" and shift is not None:
            shift = shift.inputs[0].producer if shift.op == "negative" else None
        if scaled is None or shift is None or scaled.op != "multiply" or shift.op != "multiply":
            continue
        for x, r in (scaled.inputs, scaled.inputs[::-1]):
            mean = [value for value in shift.inputs if value is not r]
            result = _centred_norm(builder, x, mean[0], r) if len(mean) == 1 else None
            if result is not None and x.shape == node.output.shape:
                return result
    return None


def _centred_norm(builder: Builder, x: Value, mean: Value, r: Value) -> Value | None:
    """The layer norm of x where r is one over the root of its variance plus a number."""
    root, average = r.producer, mean.producer
    if root is None or average is None or root.op != "rsqrt" or average.op != "mean":
        return None
    dims = reduced_dims(average, x) if average.inputs[0] is x else None
    under = root.inputs[0].producer
    if dims is None or under is None or under.op != "add":
        return None
    for spread, epsilon in (under.inputs, under.inputs[::-1]):
        number, squares = epsilon.scalar(), spread.producer
        if number is None or squares is None or squares.op not in ("mean", "variance"):
            continue
        d = squares.inputs[0].producer
        centred = d is not None and _centred_source(d.inputs[0], dims) is x
        over_rows = reduced_dims(squares, squares.inputs[0]) == dims
        if over_rows and centred and d is not None and _is_variance(squares, d.inputs[0], x):
            return builder.unary("layer_norm", x, dims=dims, epsilon=number)
        if over_rows and squares.op == "variance" and squares.inputs[0] is x:
            return builder.unary("layer_norm", x, dims=dims, epsilon=number)
    return None


def _centred_source(d: Value, dims: int) -> Value | None:
    """X where d is x minus its mean over the last `dims` dimensions."""
    node = d.producer
    if node is None or node.op != "subtract":
        return None
    mean = node.inputs[1].producer
    if mean is None or mean.op != "mean" or mean.inputs[0] is not node.inputs[0]:
        return None
    return node.inputs[0] if reduced_dims(mean, node.inputs[0]) == dims else None


def _is_variance(mean: Node, d: Value, x: Value) -> bool:
    if mean.op == "variance":
        return mean.inputs[0] is x
    return _is_square(mean.inputs[0], d)


def _is_square(square: Value, d: Value) -> bool:
    node = square.producer
    if node is None:
        return False
    # The difference may have been written out twice.
    same = [value is d or _equal(value, d) for value in node.inputs]
    if node.op == "multiply":
        return all(same)
    return same[0] and (node.op == "square" or (node.op == "power" and node.inputs[1].scalar() == 2.0))


def _equal(left: Value, right: Value) -> bool:
    a, b = left.producer, right.producer
    return (
        a is not None
        and b is not None
        and a.op == b.op == "subtract"
        and a.inputs[0] is b.inputs[0]
        and _same_mean(a.inputs[1], b.inputs[1])
    )


def _same_mean(left: Value, right: Value) -> bool:
    a, b = left.producer, right.producer
    if left is right:
        return True
    return (
        a is not None
        and b is not None
        and a.op == b.op == "mean"
        and a.attrs == b.attrs
        and a.inputs[0] is b.inputs[0]
    )
