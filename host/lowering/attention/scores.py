"""What softmax is taken of in an attention: a product of queries and keys, found from the softmax back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from host.lowering.attention.masks import Choice, excluding
from host.lowering.attention.steps import Step
from host.lowering.graph import Shape, Value

# Operations of quantised files, and those of them that round to bytes and that make numbers of bytes.
ROUNDING, READING = "quantize", "dequantize"
_OF_BYTES = (ROUNDING, READING, "add_bytes", "multiply_bytes")


@dataclass(frozen=True)
class Both:
    """A value of the graph before the pass, whose readers are known, and what it is after."""

    old: Value
    new: Value

    @property
    def op(self) -> str:
        """The operation that makes it before and after; "" where they differ."""
        before, after = self.old.producer, self.new.producer
        return before.op if before is not None and after is not None and before.op == after.op else ""

    @property
    def inputs(self) -> tuple[Both, ...]:
        """The inputs of the operation that makes this value, each in both graphs."""
        assert self.old.producer is not None and self.new.producer is not None
        pairs = zip(self.old.producer.inputs, self.new.producer.inputs, strict=True)
        return tuple(Both(old, new) for old, new in pairs)


ReadOnce = Callable[[Value], bool]


@dataclass(frozen=True)
class Scores:
    """What softmax is taken of: scale Q K + mask.

    Attributes:
        query: (..., M, D).
        key: (..., D, N).
        shape: (..., M, N), as the product makes it.
        scale: a factor.
        factors: numbers of each head, which the scores are multiplied by besides, each with the shape that it
            broadcasts to.
        masks: each with the shape that it broadcasts to; a choice is a condition that is computed.
        steps: what a quantised file computes of each product, in place of the scale, with the one mask.
    """

    query: Value
    key: Value
    shape: Shape
    scale: float
    masks: tuple[tuple[Value | Choice, Shape], ...]
    steps: tuple[Step, ...] = ()
    factors: tuple[tuple[Value, Shape], ...] = ()


def without_views(value: Both, read_once: ReadOnce) -> Both:
    """What is seen with other dimensions before the last."""
    while value.op == "reshape" and read_once(value.old):
        source = value.inputs[0]
        if source.new.shape[-1] != value.new.shape[-1]:
            break
        value = source
    return value


def without_rounding(value: Both, read_once: ReadOnce) -> tuple[Both, tuple[Step, ...]]:
    """What weights are computed of element by element, and how, where a quantised file rounds them."""
    steps: list[Step] = []
    found = value = without_views(value, read_once)
    while value.op not in ("softmax", "matmul") and read_once(value.old):
        parts = _step(value)
        if parts is None or parts[2] is not None:
            break
        steps.append(parts[0])
        value = without_views(parts[1], read_once)
    if not any(step.operation == ROUNDING for step in steps):
        return found, ()
    return value, tuple(reversed(steps))


def rounded_scores(value: Both, read_once: ReadOnce) -> Scores | None:
    """The parts of what softmax is taken of in a quantised file: steps, one of which may read a mask."""
    steps: list[Step] = []
    masks: list[tuple[Value | Choice, Shape]] = []
    while read_once(value.old):
        value = without_views(value, read_once)
        if value.op == "matmul":
            query, key = (one.new for one in value.inputs)
            return Scores(query, key, value.new.shape, 1.0, tuple(masks), tuple(reversed(steps)))
        parts = _step(value)
        if parts is None:
            return None
        step, source, other = parts
        if other is not None:
            masks.append((other, value.new.shape))
        if len(masks) > 1:
            return None
        steps.append(step)
        value = source
    return None


def _step(value: Both) -> tuple[Step, Both, Value | None] | None:
    """A value as a step, the value that it takes elements of, and another tensor that it reads."""
    node = value.new.producer
    if not value.op or node is None or not node.spec.is_elementwise:
        return None
    tensors = {one.new: one for one in value.inputs if one.new.data is None or one.new.size > 1}
    if not 1 <= len(tensors) <= 2:
        return None
    source, *others = sorted(tensors.values(), key=lambda one: not _from_product(one))
    other = others[0].new if others else None
    step = Step.of(node, source.new, other)
    return None if step is None else (step, source, other)


def plain_scores(value: Both, read_once: ReadOnce) -> Scores | None:
    """The parts of what softmax is taken of, from the last operation back."""
    scale = 1.0
    factors: list[tuple[Value, Shape]] = []
    masks: list[tuple[Value | Choice, Shape]] = []
    while read_once(value.old):
        value = without_views(value, read_once)
        scaled_already = scale != 1.0 or bool(factors)
        if value.op == "matmul" and read_once(value.old):
            query, key = (one.new for one in value.inputs)
            return Scores(query, key, value.new.shape, scale, tuple(masks), factors=tuple(factors))
        if value.op == "multiply":
            scaled, factor = sorted(value.inputs, key=lambda one: one.new.is_constant)
            number = factor.new.scalar()
            if scaled.new.shape != value.new.shape:
                return None
            if number is not None:
                scale *= number
            elif factor.new.is_constant and _is_of_heads(factor.new.shape):
                factors.append((factor.new, value.new.shape))
            else:
                return None
            value = scaled
        elif value.op == "add" and not scaled_already:
            scored, mask = sorted(value.inputs, key=lambda one: not _from_product(one))
            if scored.new.shape != value.new.shape:
                return None
            masks.append((mask.new, value.new.shape))
            value = scored
        elif value.op == "where" and not scaled_already:
            condition, *choices = value.inputs
            found = excluding(condition.new, choices[0].new, choices[1].new)
            scored = choices[0] if choices[1].new.is_constant else choices[1]
            if found is None or scored.new.shape != value.new.shape:
                return None
            masks.append((found, value.new.shape))
            value = scored
        else:
            return None
    return None


def _is_of_heads(shape: Shape) -> bool:
    """Whether what has this shape is one number for all rows and columns of a head."""
    return len(shape) > 2 and shape[-2:] == (1, 1)


def _from_product(value: Both) -> bool:
    """Whether a value is a product of two matrices, scaled, masked and rounded."""
    while value.op in ("reshape", "multiply", "add", "where", *_OF_BYTES):
        inputs = value.inputs[1:] if value.op == "where" else value.inputs
        inputs = tuple(one for one in inputs if not one.new.is_constant)
        if len(inputs) != 1:
            return any(_from_product(one) for one in inputs)
        value = inputs[0]
    return value.op == "matmul"
