"""Products with quantised weights, and rows of them."""

from __future__ import annotations

import json

from host.lowering.builder import Builder
from host.lowering.graph import Value
from host.lowering.quantised.gating import GATED_DENSE, gate_products, gated_function
from host.lowering.quantised.packing import DENSE, IN_ROWS, PACKED, ROWS, pack_quantised
from host.lowering.quantised.product import product_function
from host.lowering.quantised.row_major import row_product_function, row_rows_function
from host.lowering.quantised.rows import rows_function
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import GraphPass, OpSpec, Phase, Reader


def _reader(operation: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        """The importer's call: data, weight, scales, what `WeightLayout.further` names, and JSON.

        The JSON has "bits" and "group", and where they are there, "asymmetry" and "multiplied".
        """
        *tensors, options = call.arguments
        return builder.emit(operation, tensors, json.loads(options.value), call.outputs)[0]

    return read


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        DENSE,
        read={f"edgetlm.{DENSE}": _reader(DENSE)},
        passes=(
            GraphPass(Phase.SIMPLIFIED, pack_quantised, decides=True),
            GraphPass(Phase.SIMPLIFIED, gate_products, one_length=True),
        ),
        reads_halves=True,
    ),
    OpSpec(ROWS, read={f"edgetlm.{ROWS}": _reader(ROWS)}, reads_halves=True),
    OpSpec(PACKED[DENSE], function=product_function, reads_halves=True),
    OpSpec(GATED_DENSE, function=gated_function, reads_halves=True),
    OpSpec(PACKED[ROWS], function=rows_function, reads_halves=True),
    OpSpec(IN_ROWS[DENSE], function=row_product_function, reads_halves=True),
    OpSpec(IN_ROWS[ROWS], function=row_rows_function, reads_halves=True),
)
