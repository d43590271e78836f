"""Products with quantised weights, and rows of them."""

from __future__ import annotations

import json

from host.lowering.builder import Builder
from host.lowering.graph import Value
from host.lowering.quantised.packing import DENSE, PACKED, ROWS, pack_quantised
from host.lowering.quantised.product import product_function
from host.lowering.quantised.rows import rows_function
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import GraphPass, OpSpec, Phase, Reader


def _reader(operation: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        """The importer's call: data, weight and scales, and "bits" and "group" as JSON."""
        *tensors, options = call.arguments
        return builder.emit(operation, tensors, {"bits": json.loads(options.value)["bits"]}, call.outputs)[0]

    return read


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        DENSE,
        read={f"edgetlm.{DENSE}": _reader(DENSE)},
        passes=(GraphPass(Phase.SIMPLIFIED, pack_quantised),),
    ),
    OpSpec(ROWS, read={f"edgetlm.{ROWS}": _reader(ROWS)}),
    OpSpec(PACKED[DENSE], function=product_function),
    OpSpec(PACKED[ROWS], function=rows_function),
)
