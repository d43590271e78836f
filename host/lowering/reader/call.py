"""One relax call, with its tensor arguments already translated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from host.lowering.graph import Shape, Value

# A tensor, a tuple of tensors, or a relax expression that is no tensor (shape, number).
Argument = Any


@dataclass(frozen=True, eq=False)
class OperatorCall:
    """A call of a relax operator, as its reader gets it.

    Attributes:
        name: operator name without "relax.".
        arguments: translated arguments, in order.
        attrs: the relax attributes object, or None.
        outputs: shape and dtype of each output.
        expression: the relax call.
    """

    name: str
    arguments: tuple[Argument, ...]
    attrs: Any
    outputs: tuple[tuple[Shape, str], ...]
    expression: Any

    def value(self, index: int) -> Value:
        """The tensor argument at `index`."""
        argument = self.arguments[index]
        assert isinstance(argument, Value)
        return argument

    def number(self, index: int) -> float:
        """The number that argument `index` is."""
        return float(self.arguments[index].value)

    @property
    def shape(self) -> Shape:
        """Shape of the first output."""
        return self.outputs[0][0]

    @property
    def dtype(self) -> str:
        """Dtype of the first output."""
        return self.outputs[0][1]
