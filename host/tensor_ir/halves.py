"""Whether a function computes with halves, or only reads and writes them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from host.tensor_ir.structural import mapped


def multiplies_halves(function: tvm.tirx.PrimFunc) -> bool:
    """Whether some product of the function is one of halves (float16)."""
    found: list[bool] = []

    def seen(product: Any) -> Any:
        found.append(str(product.ty.dtype) == "float16")
        return product

    mapped(function.body, (tirx.Mul, seen))
    return any(found)
