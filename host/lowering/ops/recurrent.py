"""Layers of RNN, GRU and LSTM: as read, and as a loop over steps."""

from __future__ import annotations

import json

from host.lowering.builder import Builder
from host.lowering.graph import Value
from host.lowering.reader.call import OperatorCall
from host.lowering.recurrent.layer import OPERATION
from host.lowering.recurrent.loop import recurrent_function
from host.lowering.spec import OpSpec


def _read(builder: Builder, call: OperatorCall) -> tuple[Value, ...]:
    """The importer's call: tensors, and all else as JSON in the last argument."""
    *tensors, options = call.arguments
    attrs = json.loads(options.value)
    attrs["activations"] = tuple(attrs["activations"])
    attrs["inputs"] = tuple(attrs["inputs"])
    return builder.emit(OPERATION, tensors, attrs, call.outputs)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(OPERATION, read={f"edgetlm.{OPERATION}": _read}),
    OpSpec("recurrent_loop", function=recurrent_function),
)
