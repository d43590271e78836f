"""RNN, GRU and LSTM, unrolled over the sequence, which has a known length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    dtype_of,
    get,
    scalar,
    shape_of,
)

# A sequence longer than this would make a program of more operators than is worth compiling.
MAX_STEPS = 512

_Activation = Callable[[Any], Any]


@dataclass(frozen=True)
class _Direction:
    """What one direction computes with, each (1, ...) slice of ONNX's tensors already taken apart.

    Attributes:
        projected: input times weights plus biases for all steps, (T, N, gates * H).
        recurrent: recurrent weights, transposed, (H, gates * H).
        recurrent_bias: (gates * H), None if there are none.
        peephole: (3 * H), LSTM only.
        activations: in the standard's order.
        lengths: valid steps of each sequence, (N, 1) int32, None if all are valid.
        steps: numbers of the steps in the order they are taken.
    """

    projected: Any
    recurrent: Any
    recurrent_bias: Any
    peephole: Any
    activations: list[_Activation]
    lengths: Any
    steps: list[int]


class _Cell:
    """What the three operators share: reading attributes and inputs, running directions, stacking outputs."""

    def __init__(self, context: Context, inputs: Inputs, attributes: Attributes, gates: int) -> None:
        self.context, self.inputs, self.attributes, self.gates = context, inputs, attributes, gates
        self.hidden = int(attributes["hidden_size"])
        self.batch_first = bool(attributes.get("layout", 0))
        self.direction = attributes.get("direction", b"forward").decode()
        data = inputs[0]
        self.data = context.emit(relax.op.permute_dims(data, [1, 0, 2])) if self.batch_first else data
        self.steps, self.batch, _ = shape_of(context, self.data)
        self.dtype = dtype_of(data)
        if self.steps > MAX_STEPS:
            raise context.fail(f"a sequence of {self.steps} steps is longer than {MAX_STEPS}")

    def emit(self, expression: Any) -> Any:
        """Bind an expression."""
        return self.context.emit(expression)

    def part(self, value: Any, index: int, axis: int = 0) -> Any:
        """One slice of an axis, without that axis."""
        piece = relax.op.strided_slice(value, [axis], [index], [index + 1], [1])
        return self.emit(relax.op.squeeze(self.emit(piece), [axis]))

    def gate(self, value: Any, index: int) -> Any:
        """The columns of one gate in (N, gates * H) or (gates * H)."""
        axis = len(shape_of(self.context, value)) - 1
        start = index * self.hidden
        return self.emit(relax.op.strided_slice(value, [axis], [start], [start + self.hidden], [1]))

    def initial(self, index: int, direction: int) -> Any:
        """The state that a direction starts with, (N, H)."""
        given = get(self.inputs, index)
        if given is None:
            return constant(np.zeros((self.batch, self.hidden), self.dtype))
        return self.part(given, direction, 1 if self.batch_first else 0)

    def directions(self) -> list[_Direction]:
        """Each direction's weights and order of steps."""
        count = 2 if self.direction == "bidirectional" else 1
        return [self._direction(index, count) for index in range(count)]

    def _direction(self, index: int, count: int) -> _Direction:
        weights = self.part(self.inputs[1], index)
        recurrent = self.emit(relax.op.permute_dims(self.part(self.inputs[2], index), [1, 0]))
        projected = self.emit(relax.op.matmul(self.data, relax.op.permute_dims(weights, [1, 0])))
        recurrent_bias = None
        if get(self.inputs, 3) is not None:
            bias = self.part(self.inputs[3], index)
            size = self.gates * self.hidden
            first = self.emit(relax.op.strided_slice(bias, [0], [0], [size], [1]))
            recurrent_bias = self.emit(relax.op.strided_slice(bias, [0], [size], [2 * size], [1]))
            projected = self.emit(relax.op.add(projected, first))
        peephole = self.part(self.inputs[7], index) if get(self.inputs, 7) is not None else None
        backward = self.direction == "reverse" or index == 1
        order = list(range(self.steps))
        return _Direction(
            projected,
            recurrent,
            recurrent_bias,
            peephole,
            self._activations(index, count),
            self._lengths(),
            order[::-1] if backward else order,
        )

    def _lengths(self) -> Any:
        given = get(self.inputs, 4)
        return None if given is None else self.emit(relax.op.reshape(given, [self.batch, 1]))

    def _activations(self, index: int, count: int) -> list[_Activation]:
        defaults = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
        names = [name.decode() for name in self.attributes.get("activations", ())]
        names = names or defaults[self.context.operator] * count
        if self.attributes.get("activation_alpha") or self.attributes.get("activation_beta"):
            raise self.context.fail("activations with parameters of their own have no conversion")
        per = len(names) // count
        known = {"sigmoid": relax.op.sigmoid, "tanh": relax.op.tanh, "relu": relax.op.nn.relu}
        chosen = [known.get(name.lower()) for name in names[index * per : (index + 1) * per]]
        if None in chosen:
            raise self.context.fail(f"activation {names} has no conversion")
        return [activation for activation in chosen if activation is not None]

    def clipped(self, value: Any) -> Any:
        """The input of an activation within the operator's bounds."""
        bound = self.attributes.get("clip")
        return value if bound is None else self.emit(relax.op.clip(value, -float(bound), float(bound)))

    def kept(self, direction: _Direction, step: int, new: Any, old: Any) -> Any:
        """The new state where the sequence is not over, the old one where it is."""
        if direction.lengths is None:
            return new
        valid = self.emit(relax.op.less(scalar(step, dtype_of(direction.lengths)), direction.lengths))
        return self.emit(relax.op.where(valid, new, old))

    def outputs(
        self, sequences: list[dict[int, Any]], finals: list[list[Any]], cells: list[_Direction]
    ) -> list[Any]:
        """Y (T, directions, N, H) and the last states (directions, N, H), or with the batch first."""
        zeros = constant(np.zeros((self.batch, self.hidden), self.dtype))
        rows = []
        for made, direction in zip(sequences, cells, strict=True):
            steps = [self.kept(direction, step, made[step], zeros) for step in range(self.steps)]
            rows.append(self.emit(relax.op.stack(relax.Tuple(steps), 0)))
        whole = self.emit(relax.op.stack(relax.Tuple(rows), 1))
        last = [self.emit(relax.op.stack(relax.Tuple(list(state)), 0)) for state in zip(*finals, strict=True)]
        if self.batch_first:
            whole = self.emit(relax.op.permute_dims(whole, [2, 0, 1, 3]))
            last = [self.emit(relax.op.permute_dims(state, [1, 0, 2])) for state in last]
        return [whole, *last][: len(self.context.outputs)]


def _linear(cell: _Cell, direction: _Direction, hidden: Any, bias: bool = True) -> Any:
    result = cell.emit(relax.op.matmul(hidden, direction.recurrent))
    if bias and direction.recurrent_bias is not None:
        result = cell.emit(relax.op.add(result, direction.recurrent_bias))
    return result


def _rnn(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    cell = _Cell(context, inputs, attributes, 1)
    sequences, finals, directions = [], [], cell.directions()
    for number, direction in enumerate(directions):
        hidden, made = cell.initial(5, number), {}
        for step in direction.steps:
            total = relax.op.add(cell.part(direction.projected, step), _linear(cell, direction, hidden))
            new = cell.emit(direction.activations[0](cell.clipped(cell.emit(total))))
            hidden = made[step] = cell.kept(direction, step, new, hidden)
        sequences.append(made)
        finals.append([hidden])
    return cell.outputs(sequences, finals, directions)


def _gru(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    cell = _Cell(context, inputs, attributes, 3)
    sequences, finals, directions = [], [], cell.directions()
    for number, direction in enumerate(directions):
        hidden, made = cell.initial(5, number), {}
        for step in direction.steps:
            new = _gru_step(cell, direction, cell.part(direction.projected, step), hidden)
            hidden = made[step] = cell.kept(direction, step, new, hidden)
        sequences.append(made)
        finals.append([hidden])
    return cell.outputs(sequences, finals, directions)


def _gru_step(cell: _Cell, direction: _Direction, given: Any, hidden: Any) -> Any:
    """One step: update z, reset r, candidate h; gates lie in the order z, r, h."""
    sigmoid, tanh = direction.activations[:2]
    linear = _linear(cell, direction, hidden)

    def gated(index: int) -> Any:
        total = cell.emit(relax.op.add(cell.gate(given, index), cell.gate(linear, index)))
        return cell.emit(sigmoid(cell.clipped(total)))

    update, reset = gated(0), gated(1)
    if cell.attributes.get("linear_before_reset", 0):
        inner = cell.emit(relax.op.multiply(reset, cell.gate(linear, 2)))
    else:
        weights = cell.gate(direction.recurrent, 2)
        inner = cell.emit(relax.op.matmul(relax.op.multiply(reset, hidden), weights))
        if direction.recurrent_bias is not None:
            inner = cell.emit(relax.op.add(inner, cell.gate(direction.recurrent_bias, 2)))
    candidate = cell.emit(tanh(cell.clipped(cell.emit(relax.op.add(cell.gate(given, 2), inner)))))
    fresh = relax.op.multiply(relax.op.subtract(scalar(1.0, cell.dtype), update), candidate)
    return cell.emit(relax.op.add(fresh, relax.op.multiply(update, hidden)))


def _lstm(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    cell = _Cell(context, inputs, attributes, 4)
    sequences, finals, directions = [], [], cell.directions()
    for number, direction in enumerate(directions):
        hidden, memory, made = cell.initial(5, number), cell.initial(6, number), {}
        for step in direction.steps:
            given = cell.part(direction.projected, step)
            new_hidden, new_memory = _lstm_step(cell, direction, given, hidden, memory)
            hidden = made[step] = cell.kept(direction, step, new_hidden, hidden)
            memory = cell.kept(direction, step, new_memory, memory)
        sequences.append(made)
        finals.append([hidden, memory])
    return cell.outputs(sequences, finals, directions)


def _lstm_step(cell: _Cell, direction: _Direction, given: Any, hidden: Any, memory: Any) -> tuple[Any, Any]:
    """One step; gates lie in the order input, output, forget, cell."""
    sigmoid, tanh, last = direction.activations[:3]
    total = cell.emit(relax.op.add(given, _linear(cell, direction, hidden)))

    def gated(index: int, state: Any, peephole: int) -> Any:
        value = cell.gate(total, index)
        if direction.peephole is not None:
            seen = relax.op.multiply(cell.gate(direction.peephole, peephole), state)
            value = cell.emit(relax.op.add(value, seen))
        return cell.emit(sigmoid(cell.clipped(value)))

    entering = gated(0, memory, 0)
    if cell.attributes.get("input_forget", 0):
        forgetting = cell.emit(relax.op.subtract(scalar(1.0, cell.dtype), entering))
    else:
        forgetting = gated(2, memory, 2)
    candidate = cell.emit(tanh(cell.clipped(cell.gate(total, 3))))
    kept = relax.op.multiply(forgetting, memory)
    new_memory = cell.emit(relax.op.add(kept, relax.op.multiply(entering, candidate)))
    leaving = gated(1, new_memory, 1)
    return cell.emit(relax.op.multiply(leaving, last(new_memory))), new_memory


CONVERTERS: dict[str, Converter] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
