"""The inputs and outputs of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host.errors import ShapeError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Attributes:
        name: as in the model.
        shape: a number for every dimension; where the length is open, the one at the greatest length.
        dtype: numpy dtype name.
        open: the axes that change with the length; those of an input are the length itself.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    open: tuple[int, ...] = ()

    def shape_at(self, length: int) -> tuple[int, ...]:
        """The shape of an input at one length."""
        return tuple(length if axis in self.open else size for axis, size in enumerate(self.shape))


@dataclass(frozen=True)
class LengthRange:
    """The lengths that a model with one open dimension serves.

    Attributes:
        name: the model's symbol for the dimension.
        low, high: least and greatest length, both served.
        measured: lengths at which it is measured, in order.
    """

    name: str
    low: int
    high: int
    measured: tuple[int, ...] = ()


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model, in order.

    Attributes:
        inputs, outputs: the tensors.
        length: the range of the open dimension; None where every dimension is a number.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    length: LengthRange | None = None

    def length_of(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """The length of one set of inputs; 0 where every dimension is a number.

        Args:
            shapes: of the inputs, in order.

        Raises:
            ShapeError: a shape does not fit, two inputs disagree, or the length is outside the range.
        """
        found: tuple[str, int] | None = None
        for spec, shape in zip(self.inputs, shapes, strict=True):
            given = shape[spec.open[0]] if spec.open and len(shape) == len(spec.shape) else 0
            if tuple(shape) != spec.shape_at(given) or (spec.open and not given):
                raise ShapeError(
                    f"input {spec.name!r} is {spec.dtype}{list(shape)}, the model takes {self.type_of(spec)}"
                )
            if spec.open and found is not None and found[1] != given:
                raise ShapeError(
                    f"input {spec.name!r} has length {given}, but {found[0]!r} has {found[1]}: "
                    "give all the same"
                )
            if spec.open and found is None:
                found = (spec.name, given)
        if found is None or self.length is None:
            return 0
        low, high = self.length.low, self.length.high
        if not low <= found[1] <= high:
            raise ShapeError(
                f"input {found[0]!r} has length {found[1]}, the model takes "
                f"{self.length.name}={low}..{high}: give another, or deploy the model for a wider range"
            )
        return found[1]

    def type_of(self, spec: TensorSpec) -> str:
        """Element type and shape as text, the open dimension by its name."""
        name = self.length.name if self.length is not None else ""
        sizes = (name if axis in spec.open else str(size) for axis, size in enumerate(spec.shape))
        return f"{spec.dtype}[{', '.join(sizes)}]"


# Spread of the outputs of a model whose tensors are kept as halves, by their type. Each is rounded once to 11
# bits, 4.9e-4 of its size at most, or to 8, 3.9e-3; the errors of n layers are independent and grow as the
# root of n: 3.5e-3 or 2.8e-2 after 50.
HALF_SPREADS = {"float16": 5e-3, "bfloat16": 2.5e-2}
# Wider integers do not stand for real numbers.
_QUANTISED_BYTES = 2


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """One set of inputs with the outputs of the original runtime, in the signature's order.

    Attributes:
        inputs: of the model, or of the function.
        outputs: of the original runtime; none where the function gives nothing to be used.
        spread: how far two ways of computing the model by the original runtime itself part, relative to the
            largest output; 0 for models that are not quantised.
        function: of a language model's library that takes the inputs in place of main, and changes the state
            that the next cases read; "" for main.
        shares: for each output of classes, positions and other whole numbers, the share of its elements in
            which those two ways differ; None for one of real numbers, or of integers that stand for such.
            Empty where nothing is known: by type then.
    """

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    spread: float = 0.0
    function: str = ""
    shares: tuple[float | None, ...] = ()

    def share(self, output: int) -> float | None:
        """The share of an output's elements that may be others; None where its distance is judged.

        Args:
            output: its index.
        """
        if self.shares:
            return self.shares[output]
        return 0.0 if is_whole(self.outputs[output].dtype) else None


def is_whole(dtype: np.dtype) -> bool:
    """Whether elements of a type are truths, or integers that are too wide to stand for real numbers."""
    return dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize > _QUANTISED_BYTES)
