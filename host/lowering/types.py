"""Numeric types: how the elements of tensors are stored, computed with, summed up and packed.

A new type is an entry of `_TYPES`, and one of the contract's `item_bytes` (`limits.json`) to cross the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

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
        halves: narrower types in which such tensors may lie in memory.
        integer_products: whether products with constant weights are computed in integers.
        quantised: whether it stores real numbers by a scale and a zero point.
        shares_memory: whether numpy can read the memory of another library's tensor of the type.
    """

    name: str
    compute: str
    accumulate: str
    halves: tuple[str, ...] = ()
    integer_products: bool = False
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
        NumericType("int8", "int8", "int32", integer_products=True, quantised=True),
        NumericType("uint8", "uint8", "int32", integer_products=True, quantised=True),
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
        NumericType("float32", "float32", "float32", halves=("float16", "bfloat16")),
        NumericType("float64", "float64", "float64"),
    )
}


# Operations that round numbers of float32 to those of a half, by the half.
ROUNDED = {"float16": "rounded_to_float16", "bfloat16": "rounded_to_bfloat16"}


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


@dataclass(frozen=True)
class DotProduct:
    """Operands of an instruction that adds the products of several pairs to each 32-bit lane.

    Attributes:
        activations: type of the first operand.
        group: pairs whose products go to one lane; they lie side by side in both operands.
        weights: type in which the second operand, constant weights, lies in memory.
        sums: type of the lanes.
        single: type of the weights of products of which each has a lane to itself, as in depthwise
            convolutions. AArch64 multiplies and adds numbers of 16 bits into lanes of 32. x86 adds pairs of
            them, so that products in single precision take fewer instructions.
    """

    activations: str
    group: int
    weights: str = "int8"
    sums: str = "int32"
    single: str = "float32"


BFLOAT16 = "bf16bf16"
# By `HardwareModel.dot_product`, or of `HardwareModel.bfloat16`. VPMADDWD multiplies numbers of 16 bits: both
# operands are widened.
_DOT_PRODUCTS = {
    "u8s8": DotProduct("uint8", 4),
    "s8s8": DotProduct("int8", 4, single="int16"),
    "s16s16": DotProduct("int16", 2),
    BFLOAT16: DotProduct("bfloat16", 2, "bfloat16", "float32"),
}


def dot_product(kind: str) -> DotProduct:
    """The operands of a dot product that `HardwareModel.dot_product` names, or of `BFLOAT16`."""
    return _DOT_PRODUCTS[kind]


def single_products(kind: str) -> str:
    """Type of the weights of products of bytes with a lane each, see `DotProduct.single`.

    Args:
        kind: `HardwareModel.dot_product`, "" for a processor without one.
    """
    return dot_product(kind).single if kind else "int16"


def within_range(data: np.ndarray, half: str) -> bool:
    """Whether a type of half precision has numbers as large as all of a tensor."""
    return float(np.abs(data).max(initial=0.0)) <= float(ml_dtypes.finfo(half).max)


def quantised_types() -> tuple[str, ...]:
    """Names of the types that store real numbers by a scale and a zero point."""
    return tuple(name for name, entry in _TYPES.items() if entry.quantised)
