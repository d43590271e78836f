"""A recurrent layer as one copy of its cell for each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.graph import Value, constant
from host.lowering.passes.split_sliced_dense import TOGETHER
from host.lowering.recurrent.cells import HIDDEN, PhaseInputs
from host.lowering.recurrent.layer import Layer

# A sequence longer than this would make a program of more operations than is worth compiling.
MAX_STEPS = 512


@dataclass(frozen=True)
class _GraphArithmetic:
    builder: Builder

    def binary(self, operation: str, left: Value, right: Value) -> Value:
        return self.builder.binary(operation, left, right)

    def activation(self, name: str, value: Value) -> Value:
        return self.builder.unary(name, value)

    def number(self, value: float) -> Value:
        return constant(value, "float32")

    def result(self, name: str, value: Value) -> Value:
        return value


def unrolled(builder: Builder, layer: Layer, together: bool = False) -> tuple[Value, ...]:
    """The hidden states of all steps (T, N, H), and each state after the last step (N, H).

    Args:
        builder: of the graph.
        layer: to be unrolled.
        together: whether the gates of a step stay one product: of few rows, it takes a GPU hardly longer than
            one of a single gate does.

    Raises:
        LoweringError: the sequence is too long.
    """
    if layer.steps > MAX_STEPS:
        raise LoweringError(
            f"a recurrent layer of {layer.steps} steps is unrolled here, which ends at {MAX_STEPS}; "
            "deploy with --backend onnxruntime"
        )
    given = layer.given(builder)
    states = dict(layer.initial(builder))
    made: dict[int, Value] = {}
    zeros = constant(np.zeros(states[HIDDEN].shape, states[HIDDEN].dtype))
    for step in layer.order:
        new = _step(builder, layer, _row(builder, given, step), states, together)
        for name, old in states.items():
            states[name] = _where_valid(builder, layer, step, new[name], old)
        made[step] = _where_valid(builder, layer, step, new[HIDDEN], zeros)
    rows = [builder.reshape(made[step], (1, *made[step].shape)) for step in range(layer.steps)]
    shape = (layer.steps, *states[HIDDEN].shape)
    sequence = builder.one("concat", rows, shape, given.dtype, axis=0) if len(rows) > 1 else rows[0]
    # ONNX Runtime gives zeros where a sequence has no step, and not the initial states.
    return sequence, *(_where_valid(builder, layer, 0, states[name], zeros) for name in layer.cell.states)


def _row(builder: Builder, value: Value, index: int) -> Value:
    begin = (index, *(0,) * (len(value.shape) - 1))
    piece = builder.slice(value, begin, (1, *value.shape[1:]), (1,) * len(value.shape))
    return builder.reshape(piece, value.shape[1:])


def _columns(builder: Builder, value: Value, width: int, first: int, gate: int) -> Value:
    """The columns of a gate in (N, gates H), of which the first gate is `first`."""
    begin = (*(0,) * (len(value.shape) - 1), (gate - first) * width)
    return builder.slice(value, begin, (*value.shape[:-1], width), (1,) * len(value.shape))


def _step(
    builder: Builder, layer: Layer, given: Value, states: dict[str, Value], together: bool
) -> dict[str, Value]:
    known = {**layer.vectors(builder), **states}
    new: dict[str, Value] = {}
    for phase in layer.cell.phases:
        width = layer.hidden
        first, last = phase.gates[0] * width, (phase.gates[-1] + 1) * width
        weight = layer.recurrent
        columns = builder.slice(weight, (0, first), (weight.shape[0], last - first), (1, 1))
        source = known[phase.reads]
        shape = (source.shape[0], last - first)
        operation = "dense" if columns.is_constant else "matmul"
        attrs = {TOGETHER: True} if together and columns.is_constant else {}
        product = builder.one(operation, [source, columns], shape, given.dtype, **attrs)
        inputs = PhaseInputs(
            given=partial(_columns, builder, given, width, 0),
            product=partial(_columns, builder, product, width, phase.gates[0]),
            named=known.__getitem__,
        )
        made = dict(phase.compute(_GraphArithmetic(builder), inputs))
        new |= made
        known |= {name: value for name, value in made.items() if name not in states}
    return new


def _where_valid(builder: Builder, layer: Layer, step: int, new: Value, old: Value) -> Value:
    """The new value where the sequence is not over, the old one where it is."""
    if layer.lengths is None:
        return new
    valid = builder.binary("less", constant(np.array(step, layer.lengths.dtype)), layer.lengths)
    return builder.one("where", [valid, new, old], new.shape, new.dtype)
