"""Complex tensors of torch programs, as two real ones: relax has no complex numbers.

An operator that moves elements, or that adds them up, does the same with both parts. Others have a function
here, and those that have none are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    """Both parts of an operand, which may be real or a number."""
    if isinstance(value, Complex):
        return value.real, value.imaginary
    if isinstance(value, int | float | complex):
        number = complex(value)
        return relax.const(number.real, like), relax.const(number.imag, like) if number.imag else None
    return builder.emit(relax.op.astype(value, like)), None


def _type_of(*operands: Any) -> str:
    """The type of the parts of the operand that is complex, or else a tensor."""
    tensors = [one.real for one in operands if isinstance(one, Complex)]
    tensors += [one for one in operands if isinstance(one, relax.Expr)]
    return str(tensors[0].ty.dtype)


def _multiplied(multiply: Callable[[Any, Any], Any], names: tuple[str, str]) -> Callable[..., Any]:
    """(a + b i) (c + d i) = (a c - b d) + (a d + b c) i, of numbers or of matrices."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        emit, operands = builder.emit, [given[name] for name in names]
        (a, b), (c, d) = (_parts(builder, one, _type_of(*operands)) for one in operands)
        if b is None or d is None:
            one, other = (a, d) if b is None else (b, c)
            return Complex(emit(multiply(a, c)), emit(multiply(one, other)))
        real = emit(relax.op.subtract(emit(multiply(a, c)), emit(multiply(b, d))))
        return Complex(real, emit(relax.op.add(emit(multiply(a, d)), emit(multiply(b, c)))))

    return convert


def _summed(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Sums or differences of numbers of which one may be real."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        emit, operands = builder.emit, [given["self"], given["other"]]
        if given.get("alpha", 1) != 1:
            return None
        (a, b), (c, d) = (_parts(builder, one, _type_of(*operands)) for one in operands)
        real = emit(combine(a, c))
        zeros = emit(relax.op.zeros_like(real))
        b, d = (zeros if one is None else one for one in (b, d))
        return Complex(real, emit(combine(b, d)))

    return convert


def _quotient(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """A quotient by real numbers, or by complex ones: then a product with the conjugate over the square."""
    emit, op, (left, right) = builder.emit, relax.op, (given["self"], given["other"])
    like = _type_of(left, right)
    c, d = _parts(builder, right, like)
    if d is not None:
        squares = (emit(op.multiply(one, one)) for one in (c, d))
        square = emit(op.add(*squares))
        conjugate = Complex(c, emit(op.negative(d)))
        left = _multiplied(op.multiply, ("self", "other"))(builder, node, {"self": left, "other": conjugate})
        c = square
    a, b = _parts(builder, left, like)
    return Complex(emit(op.divide(a, c)), emit(op.divide(b, c)))


def _size(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    emit, value = builder.emit, given["self"]
    squares = (emit(relax.op.multiply(one, one)) for one in (value.real, value.imaginary))
    return emit(relax.op.sqrt(emit(relax.op.add(*squares))))


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
    return Complex(given["real"], given["imag"])


def _polar(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Numbers of a size and an angle."""
    turned = (builder.emit(function(given["angle"])) for function in (relax.op.cos, relax.op.sin))
    return Complex(*(builder.emit(relax.op.multiply(given["abs"], one)) for one in turned))


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
    "mm.default": _multiplied(relax.op.matmul, ("self", "mat2")),
    "mul.Scalar": _multiplied(relax.op.multiply, ("self", "other")),
    "mul.Tensor": _multiplied(relax.op.multiply, ("self", "other")),
    "polar.default": _polar,
    "sub.Tensor": _summed(relax.op.subtract),
    "view_as_complex.default": _of_pairs,
    "view_as_real.default": _as_pairs,
}
