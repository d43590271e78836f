"""Values that are known when the model is read, and values that pass through."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _shape_to_tensor(builder: Builder, call: OperatorCall) -> Value:
    return constant(np.asarray([int(d) for d in call.arguments[0].values], dtype="int64"))


SPECS: tuple[OpSpec, ...] = (
    OpSpec("shape_to_tensor", read={"shape_to_tensor": _shape_to_tensor}),
    OpSpec("identity", read={"stop_lift_params": lambda builder, call: call.value(0)}),
)
