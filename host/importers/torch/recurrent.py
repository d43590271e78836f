"""GRU, LSTM and RNN of torch programs: layers in one or two directions, one behind the other.

TVM's frontend unrolls them over the steps, and takes one layer of GRU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import tvm
from torch import fx
from tvm import relax

from host.errors import ImportFailed
from host.importers.shared.recurrent import emit_layer

# Cell, activations, and torch's number of each gate in the order of the ONNX standard: torch has the reset,
# update and new gate of a GRU, and the input, forget, cell and output gate of an LSTM.
_KINDS: dict[str, tuple[str, tuple[str, ...], tuple[int, ...]]] = {
    "gru.input": ("gru", ("sigmoid", "tanh"), (1, 0, 2)),
    "lstm.input": ("lstm", ("sigmoid", "tanh", "tanh"), (0, 3, 1, 2)),
    "rnn_tanh.input": ("rnn", ("tanh",), (0,)),
    "rnn_relu.input": ("rnn", ("relu",), (0,)),
}
OPERATORS = tuple(_KINDS)


def kept_whole() -> list[Any]:
    """The operators that are not to be decomposed."""
    names = (operator.split(".") for operator in OPERATORS)
    return [getattr(getattr(torch.ops.aten, name), overload) for name, overload in names]


def convert(builder: relax.BlockBuilder, node: fx.Node, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The hidden states of all steps, and the last states of all layers and directions (L D, N, H) each.

    Args:
        builder: of the function.
        node: a call of one of `OPERATORS`.
        arguments: its arguments as relax expressions and numbers.

    Raises:
        ImportFailed: there are other weights than those of the layers, or a layer is in training.
    """
    operator = node.target.__name__
    data, states, parameters, has_biases, layers, dropout, training, both, batch_first = arguments
    cell, activations, order = _KINDS[operator]
    states = list(states) if cell == "lstm" else [states]
    directions = 2 if both else 1
    per = len(parameters) // (layers * directions)
    projected = per - (4 if has_biases else 2)
    if len(parameters) != layers * directions * per or projected not in (0, 1):
        raise ImportFailed(f"operator {operator}: {len(parameters)} weights have no conversion", operator)
    if training and dropout:
        raise ImportFailed(f"operator {operator}: the model is in training; export it after eval()", operator)
    if batch_first:
        data = builder.emit(relax.op.permute_dims(data, [1, 0, 2]))
    finals: list[list[Any]] = [[] for _ in states]
    for number in range(layers * directions):
        if number % directions == 0:
            inputs, made = data, []
        given = parameters[number * per : (number + 1) * per]
        tensors = {"data": inputs, **_weights(builder, given[: per - projected], order)}
        for name, state in zip(("hidden", "memory"), states, strict=False):
            if _is_zero(state):  # which the layer begins with
                continue
            piece = builder.emit(relax.op.strided_slice(state, [0], [number], [number + 1], [1]))
            tensors[name] = builder.emit(relax.op.squeeze(piece, [0]))
        reverse = number % directions == 1
        options = {
            "cell": cell,
            "activations": activations,
            "clip": None,
            "reset_after": cell == "gru",
            "coupled": False,
            "reverse": reverse,
        }
        if projected:
            tensors = _of_whole_states(builder, tensors, given[-1], reverse)
        sequence, *last = emit_layer(builder, tensors, options)
        if projected:
            columns = builder.emit(relax.op.permute_dims(given[-1], [1, 0]))
            sequence, last[0] = (builder.emit(relax.op.matmul(one, columns)) for one in (sequence, last[0]))
        made.append(sequence)
        for final, state in zip(finals, last, strict=True):
            final.append(state)
        data = made[0] if len(made) == 1 else builder.emit(relax.op.concat(relax.Tuple(made), 2))
    if batch_first:
        data = builder.emit(relax.op.permute_dims(data, [1, 0, 2]))
    return data, *(builder.emit(relax.op.stack(relax.Tuple(final), 0)) for final in finals)


def _of_whole_states(
    builder: relax.BlockBuilder, tensors: Mapping[str, Any], projection: Any, reverse: bool
) -> dict[str, Any]:
    """The tensors of an LSTM without projection whose hidden states are projected behind it.

    A hidden state is h = P m, where m = o tanh(c) is that of an LSTM without projection, so that what the
    gates add for it is (R P) m. The first hidden state is given and is no such product: if it is not zero, it
    is a part of the input of the first step, and the recurrent weights stand beside those of the input.

    Args:
        builder: of the function.
        tensors: see `emit_layer`; recurrent (4 H, p), hidden (N, p) or none for zeros.
        projection: P (p, H).
        reverse: whether the last step is the first one.
    """
    emit, op = builder.emit, relax.op
    found = {name: tensor for name, tensor in tensors.items() if name != "hidden"}
    found["recurrent"] = emit(op.matmul(tensors["recurrent"], projection))
    if "hidden" not in tensors:
        return found
    (steps, *_), first = builder.normalize(tensors["data"]).ty.shape, tensors["hidden"]
    kind = builder.normalize(first).ty
    parts = [emit(op.expand_dims(first, 0))]
    if int(steps) > 1:
        parts.append(emit(op.zeros([int(steps) - 1, *map(int, kind.shape)], str(kind.dtype))))
    beside = emit(op.concat(relax.Tuple(parts[::-1] if reverse else parts), 0))
    found["data"] = emit(op.concat(relax.Tuple([tensors["data"], beside]), 2))
    found["weight"] = emit(op.concat(relax.Tuple([tensors["weight"], tensors["recurrent"]]), 1))
    return found


def _is_zero(value: Any) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and not value.value.numpy().any()


def _weights(builder: relax.BlockBuilder, parameters: Sequence[Any], order: Sequence[int]) -> dict[str, Any]:
    """The weights of one direction, with the gates in the standard's order."""

    def ordered(value: Any) -> Any:
        if len(order) == 1:
            return value
        size = int(builder.normalize(value).ty.shape[0]) // len(order)
        parts = [
            builder.emit(relax.op.strided_slice(value, [0], [gate * size], [(gate + 1) * size], [1]))
            for gate in order
        ]
        return builder.emit(relax.op.concat(relax.Tuple(parts), 0))

    weight, recurrent, *biases = (ordered(value) for value in parameters)
    found = {"weight": weight, "recurrent": recurrent}
    if biases:
        found["bias"] = builder.emit(relax.op.concat(relax.Tuple(biases), 0))
    return found
