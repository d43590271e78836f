"""Einstein sums, read as matrix products, elementwise products, sums and transposes.

Operands are taken from left to right, two at a time. A dimension that both have and that is still needed
counts the products of a batch; one that both have and that is not needed is summed up by a product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from host.lowering.builder import Builder
from host.lowering.graph import Value
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec

_ELLIPSIS = "..."


@dataclass(frozen=True)
class _Operand:
    """A tensor with a label for each of its dimensions."""

    value: Value
    labels: tuple[str, ...]

    def size(self, labels: Collection[str]) -> tuple[int, ...]:
        """Sizes of the dimensions with these labels, in the order of `labels`."""
        return tuple(self.value.shape[self.labels.index(label)] for label in labels)

    def ordered(self, builder: Builder, labels: Sequence[str]) -> Value:
        """The tensor with its dimensions in this order."""
        return builder.transpose(self.value, [self.labels.index(label) for label in labels])


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    values = call.arguments[0]
    found = terms(str(call.attrs.subscripts), [len(value.shape) for value in values])
    if found is None or any(value.dtype != call.dtype or value.size == 0 for value in values):
        return None
    labels, wanted = found
    operands = [_Operand(value, names) for value, names in zip(values, labels, strict=True)]
    if _sizes_differ(operands):
        return None
    result, *rest = operands
    for position, operand in enumerate(rest):
        later = {label for other in rest[position + 1 :] for label in other.labels}
        result = _product(builder, result, operand, {*wanted, *later})
    return _summed(builder, result, wanted).ordered(builder, wanted)


def terms(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]] | None:
    """The labels of the operands' dimensions and of the result's.

    Args:
        equation: "ij,jk->ik", with "..." for dimensions without labels; without "->" the result has those
            first, and then the labels that stand once, in alphabetical order.
        ranks: dimensions of each operand.

    Returns:
        None where an operand or the result has a label twice, or the equation does not fit the ranks.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        return None
    expanded = [_expanded(term, rank) for term, rank in zip(inputs, ranks, strict=True)]
    longest = max(
        (rank - len(term.replace(_ELLIPSIS, "")) for term, rank in _with_ellipsis(inputs, ranks)), default=0
    )
    unnamed = tuple(f"{_ELLIPSIS}{number}" for number in reversed(range(longest)))
    if arrow:
        before, found, after = right.partition(_ELLIPSIS)
        result = (*before, *(unnamed if found else ()), *after)
    else:
        counts = Counter(label for term in inputs for label in term.replace(_ELLIPSIS, ""))
        result = (*unnamed, *sorted(label for label, count in counts.items() if count == 1))
    everything = {label for labels in expanded for label in labels}
    if any(len(set(labels)) < len(labels) for labels in (*expanded, result)) or not everything.issuperset(
        result
    ):
        return None
    if any(len(labels) != rank for labels, rank in zip(expanded, ranks, strict=True)):
        return None
    return expanded, result


def _with_ellipsis(inputs: Sequence[str], ranks: Sequence[int]) -> list[tuple[str, int]]:
    return [(term, rank) for term, rank in zip(inputs, ranks, strict=True) if _ELLIPSIS in term]


def _expanded(term: str, rank: int) -> tuple[str, ...]:
    """Labels of an operand; those of an ellipsis are numbered from the right, as shapes broadcast."""
    before, found, after = term.partition(_ELLIPSIS)
    count = rank - len(before) - len(after) if found else 0
    return (*before, *(f"{_ELLIPSIS}{number}" for number in reversed(range(count))), *after)


def _sizes_differ(operands: Sequence[_Operand]) -> bool:
    """Whether a label has two sizes: one of them is 1 then, and broadcasts."""
    sizes: dict[str, int] = {}
    pairs = [pair for one in operands for pair in zip(one.labels, one.value.shape, strict=True)]
    return any(sizes.setdefault(label, size) != size for label, size in pairs)


def _summed(builder: Builder, operand: _Operand, kept: Collection[str]) -> _Operand:
    """The sum over all dimensions whose labels are not kept."""
    axes = tuple(axis for axis, label in enumerate(operand.labels) if label not in kept)
    if not axes:
        return operand
    labels = tuple(label for label in operand.labels if label in kept)
    value, shape = operand.value, operand.size(labels)
    return _Operand(builder.one("sum", [value], shape, value.dtype, axes=axes, keepdims=False), labels)


def _product(builder: Builder, left: _Operand, right: _Operand, kept: Collection[str]) -> _Operand:
    """The product of two operands, summed over what is not kept."""
    left = _summed(builder, left, {*kept, *right.labels})
    right = _summed(builder, right, {*kept, *left.labels})
    batch = [label for label in left.labels if label in right.labels and label in kept]
    if left.value.is_constant and not right.value.is_constant and not batch:
        # Weights are the second operand of a product.
        left, right = right, left
    summed = [label for label in left.labels if label in right.labels and label not in kept]
    rows = [label for label in left.labels if label not in right.labels]
    columns = [label for label in right.labels if label not in left.labels]
    labels = (*batch, *rows, *columns)
    sizes = (*left.size(batch), *left.size(rows), *right.size(columns))
    if not summed:
        first = builder.reshape(
            left.ordered(builder, (*batch, *rows)), (*sizes[: len(batch) + len(rows)], *[1] * len(columns))
        )
        second = right.ordered(builder, (*batch, *columns))
        second = builder.reshape(second, (*right.size(batch), *[1] * len(rows), *right.size(columns)))
        return _Operand(builder.binary("multiply", first, second), labels)
    depth, height, width = prod(left.size(summed)), prod(left.size(rows)), prod(right.size(columns))
    leading = left.size(batch)
    first = builder.reshape(left.ordered(builder, (*batch, *rows, *summed)), (*leading, height, depth))
    second = builder.reshape(right.ordered(builder, (*batch, *summed, *columns)), (*leading, depth, width))
    op = "dense" if second.is_constant and not batch else "matmul"
    product = builder.one(op, [first, second], (*leading, height, width), left.value.dtype)
    return _Operand(builder.reshape(product, sizes), labels)


# Read as other operations, or left to TVM: no node has this name.
SPECS: tuple[OpSpec, ...] = (OpSpec("einsum", read={"einsum": _read}),)
