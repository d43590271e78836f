"""Draws random layers of GRU, LSTM and RNN."""

from __future__ import annotations

from host.lowering.graph import Value
from host.lowering.recurrent.layer import OPERATION
from research.pretraining.operator_sampler import Draw

_CELLS = {"rnn": 1, "gru": 3, "lstm": 4}
_ACTIVATIONS = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}
_HIDDEN = (16, 32, 40, 64, 64, 96, 100, 128, 128, 192, 200, 256, 256, 320, 384, 512)


def layer(draw: Draw) -> Value:
    """One direction of a layer. It has few steps, because programs do not depend on the number of steps."""
    cell = draw.random.choice(tuple(_CELLS))
    steps, batch = draw.random.choice((2, 3, 4)), draw.random.choice((1, 1, 1, 2, 4, 8))
    width, hidden = draw.random.choice(_HIDDEN), draw.random.choice(_HIDDEN)
    rows = _CELLS[cell] * hidden
    tensors = {
        "data": draw.input(steps, batch, width),
        "weight": draw.weight(rows, width),
        "recurrent": draw.weight(rows, hidden),
        "bias": draw.weight(2 * rows),
    }
    attrs = {
        "cell": cell,
        "activations": _ACTIVATIONS[cell],
        "clip": None,
        "reset_after": cell == "gru" and draw.chance(0.7),
        "coupled": False,
        "reverse": draw.chance(0.2),
        "inputs": tuple(tensors),
    }
    states = 2 if cell == "lstm" else 1
    outputs = [((steps, batch, hidden), "float32"), *[((batch, hidden), "float32")] * states]
    return draw.builder.emit(OPERATION, list(tensors.values()), attrs, outputs)[0]
