"""Complex tensors of torch programs, as two real ones: relax has no complex numbers.

An operator that moves elements, or that adds them up, does the same with both parts. Others have a function
here, and those that have none are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any

from torch import fx
from tvm import relax

# What is done to each part alone.
_OF_EACH_PART = frozenset(
    f"{name}.{overload}"
    for name, overloads in {
        "alias": "default",
        "cat": "default",
        "clone": "default",
        "constant_pad_nd": "default",
        "detach": "default",
        "expand": "default",
        "flip": "default",
        "gather": "default",
        "index": "Tensor",
        "index_select": "default",
        "mean": "default dim",
        "neg": "default",
        "permute": "default",
        "repeat": "default",
        "resolve_conj": "default",
        "resolve_neg": "default",
        "roll": "default",
        "select": "int",
        "slice": "Tensor",
        "split": "Tensor",
        "split_with_sizes": "default",
        "squeeze": "default dim dims",
        "stack": "default",
        "sum": "default dim_IntList",
        "transpose": "int",
        "unfold": "default",
        "unsqueeze": "default",
        "view": "default",
    }.items()
    for overload in overloads.split()
) | {"getitem"}


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor.

    Attributes:
        real: its real parts.
        imaginary: its imaginary parts, of the same shape and type.
    """

    real: Any
    imaginary: Any


# Powers up to this are written as products.
_MOST_POWERS = 64


def is_complex(node: fx.Node, values: Mapping[fx.Node, Any]) -> bool:
    """Whether a node reads or makes complex tensors.

    Args:
        node: of a program.
        values: what the nodes before it have become.
    """
    made = getattr(node.meta.get("val"), "dtype", None)
    read = (values.get(one) for one in node.all_input_nodes)
    return (made is not None and made.is_complex) or any(map(_holds_complex, read))


def _holds_complex(value: Any) -> bool:
    return isinstance(value, Complex) or (isinstance(value, tuple) and any(map(_holds_complex, value)))


def tensors(value: Any) -> Any:
    """The real tensors that a value of a node consists of, or the value itself."""
    if isinstance(value, Complex):
        return value.real, value.imaginary
    return value


def of_each_part(node: fx.Node, values: dict[fx.Node, Any], convert: Callable[[fx.Node], Any]) -> Any:
    """What an operator makes of the real parts, and of the imaginary ones; None if it treats both otherwise.

    Args:
        node: a call of an operator.
        values: what the nodes before it have become; complex ones are replaced meanwhile.
        convert: converts the node for real tensors.
    """
    name = getattr(node.target, "__name__", "")
    given = {one: values[one] for one in node.all_input_nodes if _holds_complex(values[one])}
    if name not in _OF_EACH_PART or (name == "constant_pad_nd.default" and any(node.args[2:])):
        return None
    if name in ("cat.default", "stack.default") and len(given) < len(node.all_input_nodes):
        return None
    made = []
    try:
        for part in ("real", "imaginary"):
            values.update({one: _part(value, part) for one, value in given.items()})
            made.append(convert(node))
    finally:
        values.update(given)
    return _joined(*made)


def _part(value: Any, part: str) -> Any:
    return tuple(_part(one, part) for one in value) if isinstance(value, tuple) else getattr(value, part)


def _joined(real: Any, imaginary: Any) -> Any:
    if isinstance(real, relax.Expr) and not isinstance(real, relax.Tuple):
        return Complex(real, imaginary)
    return tuple(Complex(*parts) for parts in zip(real, imaginary, strict=True))


def _parts(builder: relax.BlockBuilder, value: Any, like: str) -> tuple[Any, Any]:
    """Both parts of an operand, which may be real or a number, in one type."""
    if isinstance(value, int | float | complex):
        number = complex(value)
        return relax.const(number.real, like), relax.const(number.imag, like) if number.imag else None
    if isinstance(value, Complex):
        return _in_type(builder, value.real, like), _in_type(builder, value.imaginary, like)
    return _in_type(builder, value, like), None


def _in_type(builder: relax.BlockBuilder, value: Any, dtype: str) -> Any:
    return value if str(value.ty.dtype) == dtype else builder.emit(relax.op.astype(value, dtype))


def _made_in(node: fx.Node) -> str:
    """The type of the parts of a result, which is that of the operands' parts together."""
    return str(node.meta["val"].dtype.to_real()).removeprefix("torch.")


def _multiplied(multiply: Callable[[Any, Any], Any], names: tuple[str, str]) -> Callable[..., Any]:
    """(a + b i) (c + d i) = (a c - b d) + (a d + b c) i, of numbers or of matrices."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        emit, like = builder.emit, _made_in(node)
        (a, b), (c, d) = (_parts(builder, given[name], like) for name in names)
        if b is None or d is None:
            one, other = (a, d) if b is None else (b, c)
            return Complex(emit(multiply(a, c)), emit(multiply(one, other)))
        real = emit(relax.op.subtract(emit(multiply(a, c)), emit(multiply(b, d))))
        return Complex(real, emit(relax.op.add(emit(multiply(a, d)), emit(multiply(b, c)))))

    return convert


def _summed(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Sums or differences of numbers of which one may be real."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        emit, like = builder.emit, _made_in(node)
        if given.get("alpha", 1) != 1:
            return None
        (a, b), (c, d) = (_parts(builder, given[name], like) for name in ("self", "other"))
        real = emit(combine(a, c))
        zeros = emit(relax.op.zeros_like(real))
        b, d = (zeros if one is None else one for one in (b, d))
        return Complex(real, emit(combine(b, d)))

    return convert


def _quotient(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """A quotient by real numbers, or by complex ones.

    The smaller part of a complex divisor is first divided by the larger one, whose square may have no place
    in the type (R. L. Smith, Algorithm 116, Communications of the ACM 5(8), 1962). torch does the same, so
    infinite parts give what they give there: a finite number by an infinite one is 0.
    """
    emit, op, like = builder.emit, relax.op, _made_in(node)
    (a, b), (c, d) = (_parts(builder, given[name], like) for name in ("self", "other"))
    b = emit(op.zeros_like(a)) if b is None else b
    if d is None:
        return Complex(*(emit(op.divide(part, c)) for part in (a, b)))
    zero, one = (relax.const(number, like) for number in (0.0, 1.0))
    sizes = [emit(op.abs(part)) for part in (c, d)]
    of_real, none = emit(op.greater_equal(*sizes)), emit(op.equal(emit(op.add(*sizes)), zero))
    larger, smaller = (emit(op.where(of_real, *parts)) for parts in ((c, d), (d, c)))
    first, second = (emit(op.where(of_real, *parts)) for parts in ((a, b), (b, a)))
    ratio = emit(op.where(none, zero, emit(op.divide(smaller, larger))))
    square = emit(op.add(one, emit(op.multiply(ratio, ratio))))
    real = emit(op.add(first, emit(op.multiply(second, ratio))))
    turned = emit(op.subtract(second, emit(op.multiply(first, ratio))))
    imaginary = emit(op.where(of_real, turned, emit(op.negative(turned))))
    # By 0, the parts of the dividend are divided by 0, as in torch.
    larger = emit(op.where(none, zero, larger))
    parts = (emit(op.where(none, *choice)) for choice in ((a, real), (b, imaginary)))
    return Complex(*(emit(op.divide(emit(op.divide(part, square)), larger)) for part in parts))


def _size(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The size, by parts over the larger one: their squares may have no place in the type."""
    emit, op, value = builder.emit, relax.op, given["self"]
    larger, finite = _larger_part(builder, value.real, value.imaginary)
    zero, one = (relax.const(number, str(value.real.ty.dtype)) for number in (0.0, 1.0))
    scale = emit(op.where(emit(op.equal(larger, zero)), one, finite))
    parts = (emit(op.divide(part, scale)) for part in (value.real, value.imaginary))
    squares = (emit(op.multiply(part, part)) for part in parts)
    return emit(op.multiply(emit(op.sqrt(emit(op.add(*squares)))), scale))


def _larger_part(builder: relax.BlockBuilder, real: Any, imaginary: Any) -> tuple[Any, Any]:
    """The size of the larger part, and the same where it is finite, or 1."""
    emit, op = builder.emit, relax.op
    larger = emit(op.maximum(*(emit(op.abs(part)) for part in (real, imaginary))))
    infinite, one = (relax.const(number, str(real.ty.dtype)) for number in (inf, 1.0))
    return larger, emit(op.where(emit(op.less(larger, infinite)), larger, one))


def _angle(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    return builder.emit(relax.op.atan2(given["self"].imaginary, given["self"].real))


def _conjugate(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    return Complex(given["self"].real, builder.emit(relax.op.negative(given["self"].imaginary)))


def _as_pairs(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    parts = relax.Tuple([given["self"].real, given["self"].imaginary])
    return builder.emit(relax.op.stack(parts, -1))


def _of_pairs(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The last axis has the real part and the imaginary one."""
    data, last = given["self"], given["self"].ty.ndim - 1
    cut = [builder.emit(relax.op.strided_slice(data, [last], [at], [at + 1])) for at in (0, 1)]
    return Complex(*(builder.emit(relax.op.squeeze(one, [last])) for one in cut))


def _of_parts(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Of parts that broadcast to one shape."""
    shape, parts = list(node.meta["val"].shape), (given["real"], given["imag"])
    return Complex(*(builder.emit(relax.op.broadcast_to(part, shape)) for part in parts))


def _polar(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Numbers of a size and an angle."""
    turned = (builder.emit(function(given["angle"])) for function in (relax.op.cos, relax.op.sin))
    return Complex(*(builder.emit(relax.op.multiply(given["abs"], one)) for one in turned))


def _exponential(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """exp(a + b i) = exp(a) (cos b + i sin b), with infinities and zeros as C's `cexp` has them.

    The two halves of the size may have a place in the type where all of it has none.
    """
    emit, op, (a, b) = builder.emit, relax.op, (given["self"].real, given["self"].imaginary)
    zero, half, infinite, none = (relax.const(one, str(a.ty.dtype)) for one in (0.0, 0.5, inf, nan))
    size = emit(op.exp(emit(op.multiply(a, half))))
    cosine, sine = (
        emit(op.multiply(emit(op.multiply(size, emit(function(b)))), size)) for function in (op.cos, op.sin)
    )
    # An angle that is infinite or NaN leaves nothing of a size of zero, and the size of an infinite one.
    known, nothing = emit(op.isfinite(b)), emit(op.equal(a, emit(op.negative(infinite))))
    without = emit(op.where(nothing, zero, none))
    real = emit(op.where(emit(op.equal(a, infinite)), infinite, without))
    imaginary = emit(op.where(known, sine, without))
    return Complex(emit(op.where(known, cosine, real)), emit(op.where(emit(op.equal(b, zero)), b, imaginary)))


def _reciprocal(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    return _quotient(builder, node, {"self": 1.0, "other": given["self"]})


def _power(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Small whole powers, by squares; None for others."""
    exponent, value = given["exponent"], given["self"]
    if exponent != int(exponent) or not 0 < exponent <= _MOST_POWERS:
        return None
    multiply = _multiplied(relax.op.multiply, ("self", "other"))
    made = None
    for bit in reversed(f"{int(exponent):b}"):
        if bit == "1":
            made = value if made is None else multiply(builder, node, {"self": made, "other": value})
        value = multiply(builder, node, {"self": value, "other": value})
    return made


def _chosen(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """One of two numbers, of which one may be real, where a condition holds."""
    emit, like, made = builder.emit, _made_in(node), []
    zero = relax.const(0.0, like)
    pairs = [_parts(builder, given[name], like) for name in ("self", "other")]
    for one, other in zip(*pairs, strict=True):
        parts = (zero if part is None else part for part in (one, other))
        made.append(emit(relax.op.where(given["condition"], *parts)))
    return Complex(*made)


def _converted(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Complex numbers of real ones, or in another type."""
    made = node.meta["val"]
    if not made.dtype.is_complex:
        return None
    dtype = str(made.real.dtype).removeprefix("torch.")
    real, imaginary = _parts(builder, given["self"], dtype)
    if imaginary is None:
        return Complex(real, builder.emit(relax.op.zeros_like(real)))
    return Complex(*(builder.emit(relax.op.astype(one, dtype)) for one in (real, imaginary)))


# As the converters of `host.importers.torch.operators`, of operators that read or make complex tensors.
CONVERTERS: Mapping[str, Any] = {
    "_conj.default": _conjugate,
    "_to_copy.default": _converted,
    "abs.default": _size,
    "add.Tensor": _summed(relax.op.add),
    "angle.default": _angle,
    "bmm.default": _multiplied(relax.op.matmul, ("self", "mat2")),
    "complex.default": _of_parts,
    "conj_physical.default": _conjugate,
    "div.Scalar": _quotient,
    "div.Tensor": _quotient,
    "exp.default": _exponential,
    "mm.default": _multiplied(relax.op.matmul, ("self", "mat2")),
    "mul.Scalar": _multiplied(relax.op.multiply, ("self", "other")),
    "mul.Tensor": _multiplied(relax.op.multiply, ("self", "other")),
    "polar.default": _polar,
    "pow.Tensor_Scalar": _power,
    "reciprocal.default": _reciprocal,
    "sub.Tensor": _summed(relax.op.subtract),
    "view_as_complex.default": _of_pairs,
    "view_as_real.default": _as_pairs,
    "where.self": _chosen,
}
