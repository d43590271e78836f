"""Recurrent layers as one operation of relax, for every format that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from host.importers.own_operator import emit_own

# What the compiler reads the operation by (`host.lowering.ops.recurrent`).
OPERATION = "recurrent"
# Activations that the compiler knows.
ACTIVATIONS = ("sigmoid", "tanh", "relu")


def emit_layer(
    builder: relax.BlockBuilder, tensors: Mapping[str, Any], options: Mapping[str, Any]
) -> list[Any]:
    """One direction of one layer of GRU, LSTM or RNN, with the order of gates of the ONNX standard.

    Args:
        builder: of the function.
        tensors: data (T, N, I), weight (G H, I), recurrent (G H, H), and where they are given bias (2 G H),
            lengths (N, 1), hidden and memory (N, H), and peepholes (3 H); G is the number of gates.
        options: cell ("rnn", "gru" or "lstm"), activations (of `ACTIVATIONS`), clip (bound of their inputs or
            None), reset_after (GRU: the reset gate multiplies the product), coupled (LSTM: the forget gate is
            one minus the input gate), and reverse (steps are taken from the last to the first).

    Returns:
        The hidden states of all steps (T, N, H), and each state after the last step (N, H).
    """
    steps, batch, _ = _shape(builder, tensors["data"])
    hidden = _shape(builder, tensors["recurrent"])[1]
    dtype = builder.normalize(tensors["data"]).ty.dtype
    states = 2 if options["cell"] == "lstm" else 1
    types = [((steps, batch, hidden), dtype), *[((batch, hidden), dtype)] * states]
    return emit_own(builder, OPERATION, list(tensors.values()), {**options, "inputs": list(tensors)}, types)


def _shape(builder: relax.BlockBuilder, value: Any) -> list[int]:
    return [int(extent) for extent in builder.normalize(value).ty.shape]
