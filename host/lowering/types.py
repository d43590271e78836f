"""Numeric types: how the elements of tensors are stored, computed with, summed up and packed.

A new type is an entry of `_TYPES`, and one of the contract's `item_bytes` (`limits.json`) to cross the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import LoweringError


@dataclass(frozen=True)
class NumericType:
    """One type of elements.

    Attributes:
        name: of numpy (or ml_dtypes) and TVM.
        compute: type of arithmetic with such elements; another one where that would cost accuracy, or a
            conversion at every operation.
        accumulate: type of sums of their products.
        half: narrower type in which such tensors may lie in memory, None if there is none.
        packing: elements along a sum that lie side by side in packed weights, since one instruction
            multiplies and adds so many.
        quantised: whether it stores real numbers by a scale and a zero point.
        shares_memory: whether numpy can read the memory of another library's tensor of the type.
    """

    name: str
    compute: str
    accumulate: str
    half: str | None = None
    packing: int = 1
    quantised: bool = False
    shares_memory: bool = True

    @property
    def bytes(self) -> int:
        """Size of one element in memory."""
        return LIMITS.item_bytes[self.name]

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.name.startswith(("float", "bfloat"))

    @property
    def is_integer(self) -> bool:
        """Whether elements are whole numbers; truth values are none."""
        return self.name.startswith(("int", "uint"))


_TYPES = {
    entry.name: entry
    for entry in (
        NumericType("bool", "bool", "int32", shares_memory=False),
        NumericType("int8", "int8", "int32", packing=4, quantised=True),
        NumericType("uint8", "uint8", "int32", packing=4, quantised=True),
        NumericType("int16", "int16", "int32", quantised=True),
        NumericType("uint16", "uint16", "int32", quantised=True),
        NumericType("int32", "int32", "int32"),
        NumericType("uint32", "uint32", "uint32"),
        NumericType("int64", "int64", "int64"),
        NumericType("uint64", "uint64", "uint64"),
        # Processors without half-precision vector units convert at every operation, and sums of half numbers
        # lose what their products had.
        NumericType("float16", "float32", "float32"),
        NumericType("bfloat16", "float32", "float32", shares_memory=False),
        NumericType("float32", "float32", "float32", half="float16"),
        NumericType("float64", "float64", "float64"),
    )
}


def numeric_type(name: str) -> NumericType:
    """The type of a name.

    Raises:
        LoweringError: the compiler has no such type.
    """
    if name not in _TYPES:
        raise LoweringError(
            f"The model holds elements of type {printable(name)}, which cannot be lowered; "
            "deploy with --backend onnxruntime."
        )
    return _TYPES[name]


def quantised_types() -> tuple[str, ...]:
    """Names of the types that store real numbers by a scale and a zero point."""
    return tuple(name for name, entry in _TYPES.items() if entry.quantised)
