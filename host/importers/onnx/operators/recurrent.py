"""RNN, GRU and LSTM as layers in one direction each, which the compiler runs as loops or unrolls."""

from __future__ import annotations

from typing import Any

from tvm import relax

from device_agent.contract.text import printable
from host.importers.onnx.operators.context import Attributes, Context, Converter, Inputs, get, shape_of
from host.importers.shared.recurrent import ACTIVATIONS, emit_layer

# Inputs of the standard's operators behind the data, by the name that the graph has for them.
_INPUTS = {
    1: "weight",
    2: "recurrent",
    3: "bias",
    4: "lengths",
    5: "hidden",
    6: "memory",
    7: "peepholes",
}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_DEFAULT_ACTIVATIONS = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}


def _recurrent(context: Context, inputs: Inputs, attributes: Attributes) -> list[Any]:
    """Y (T, directions, N, H) and the last states (directions, N, H), or with the batch first.

    Raises:
        ImportFailed: a tensor has another shape than the standard's, or an option has no conversion.
    """
    batch_first = bool(attributes.get("layout", 0))
    direction = attributes.get("direction", b"forward").decode(errors="replace")
    if direction not in _DIRECTIONS:
        raise context.fail(f"there is no direction {printable(direction)}")
    data = inputs[0]
    if batch_first:
        data = context.emit(relax.op.permute_dims(data, [1, 0, 2]))
    made = []
    for index, reverse in enumerate(_DIRECTIONS[direction]):
        options = _options(context, attributes, index, len(_DIRECTIONS[direction]))
        options["reverse"] = reverse
        tensors = {"data": data, **_tensors(context, inputs, index, batch_first)}
        _check_shapes(context, tensors)
        made.append(emit_layer(context.builder, tensors, options))
    sequences, *states = zip(*made, strict=True)
    sequence = context.emit(relax.op.stack(relax.Tuple(list(sequences)), 1))
    last = [context.emit(relax.op.stack(relax.Tuple(list(state)), 0)) for state in states]
    if batch_first:
        sequence = context.emit(relax.op.permute_dims(sequence, [2, 0, 1, 3]))
        last = [context.emit(relax.op.permute_dims(state, [1, 0, 2])) for state in last]
    return [sequence, *last][: len(context.outputs)]


def _options(context: Context, attributes: Attributes, index: int, count: int) -> dict[str, Any]:
    """What the layer of one direction depends on besides its tensors.

    Raises:
        ImportFailed: an activation that has no conversion.
    """
    names = [name.decode(errors="replace").lower() for name in attributes.get("activations", ())]
    names = names or list(_DEFAULT_ACTIVATIONS[context.operator]) * count
    if attributes.get("activation_alpha") or attributes.get("activation_beta"):
        raise context.fail("activations with parameters of their own have no conversion")
    per = len(_DEFAULT_ACTIVATIONS[context.operator])
    chosen = names[index * per : (index + 1) * per]
    if len(chosen) != per or not set(chosen) <= set(ACTIVATIONS):
        raise context.fail(f"activations {printable(', '.join(names))} have no conversion")
    bound = attributes.get("clip")
    return {
        "cell": context.operator.lower(),
        "activations": chosen,
        "clip": None if bound is None else float(bound),
        "reset_after": bool(attributes.get("linear_before_reset", 0)),
        "coupled": bool(attributes.get("input_forget", 0)),
    }


def _tensors(context: Context, inputs: Inputs, index: int, batch_first: bool) -> dict[str, Any]:
    """The tensors of one direction by name."""
    found = {}
    for number, name in _INPUTS.items():
        value = get(inputs, number)
        if value is None:
            continue
        if name == "lengths":
            found[name] = context.emit(relax.op.reshape(value, [*shape_of(context, value), 1]))
            continue
        axis = 1 if batch_first and name in ("hidden", "memory") else 0
        piece = context.emit(relax.op.strided_slice(value, [axis], [index], [index + 1], [1]))
        found[name] = context.emit(relax.op.squeeze(piece, [axis]))
    return found


def _check_shapes(context: Context, tensors: dict[str, Any]) -> None:
    """Refuse tensors that do not fit together; H follows from the recurrent weights."""
    shapes = {name: shape_of(context, tensor) for name, tensor in tensors.items()}
    if len(shapes["data"]) != 3 or 0 in shapes["data"] or len(shapes["recurrent"]) != 2:
        raise context.fail("its input is not (steps, sequences, width), or its recurrent weights no matrix")
    _, batch, width = shapes["data"]
    hidden, gates = shapes["recurrent"][1], _GATES[context.operator]
    wanted = {
        "weight": (gates * hidden, width),
        "recurrent": (gates * hidden, hidden),
        "bias": (2 * gates * hidden,),
        "lengths": (batch, 1),
        "hidden": (batch, hidden),
        "memory": (batch, hidden),
        "peepholes": (3 * hidden,),
    }
    for name, shape in shapes.items():
        if name != "data" and (tuple(shape) != wanted[name] or not hidden):
            raise context.fail(f"its {name} has shape {tuple(shape)} and not {wanted[name]}")


CONVERTERS: dict[str, Converter] = {"GRU": _recurrent, "LSTM": _recurrent, "RNN": _recurrent}
