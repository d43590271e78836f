"""Convolutions and matrix products, channels last, and how convolutions share functions."""

from __future__ import annotations

from dataclasses import replace

from host.lowering.graph import Node
from host.lowering.ops.contraction.matrices import is_matrix_product
from host.lowering.spec import Fusion


def _computes(reader: Node, node: Node) -> bool:
    """The copy into the padded tensor can do more on the way.

    Without padding there is no copy, but a transposed input needs one anyway.
    """
    if reader.inputs[0] is not node.output:
        return False
    return node.op == "transpose" or (node.spec.is_elementwise and max(reader.attrs["padding"]) > 0)


PADDED = Fusion(anchor=True, computes=_computes)
PADDED_PRODUCT = replace(PADDED, matrices=is_matrix_product)
