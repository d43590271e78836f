"""A recurrent layer in one direction, as the graph holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, constant
from host.lowering.recurrent.cells import INNER_BIAS, PEEPHOLES, Cell

OPERATION = "recurrent"


@dataclass(frozen=True, eq=False)
class Layer:
    """One direction of one layer of H hidden units over T steps of N sequences; G is the number of gates.

    Attributes:
        cell: what a step computes.
        hidden: H.
        order: numbers of the steps in the order in which they are taken.
        data: (T, N, I).
        weight: (G H, I).
        recurrent: transposed, (H, G H).
        bias: (2 G H), of the input's and of the recurrent product; None for zeros.
        lengths: valid steps of each sequence (N, 1), None if all are valid.
        states: initial states (N, H) by name; zeros where they are not given.
        peepholes: (3 H) for input, output and forget gate, None if there are none.
    """

    cell: Cell
    hidden: int
    order: tuple[int, ...]
    data: Value
    weight: Value
    recurrent: Value
    bias: Value | None
    lengths: Value | None
    states: Mapping[str, Value]
    peepholes: Value | None

    @property
    def steps(self) -> int:
        """Number of steps, T."""
        return len(self.order)

    @property
    def batch(self) -> int:
        """Number of sequences, N."""
        return self.data.shape[1]

    @property
    def is_constant(self) -> bool:
        """Whether all weights are known."""
        weights = (self.weight, self.recurrent, self.bias, self.peepholes)
        return all(value is None or value.is_constant for value in weights)

    def given(self, builder: Builder) -> Value:
        """The terms that each step adds to its recurrent products, (T, N, G H): input parts and biases."""
        columns, width = self.weight.shape[0], self.data.shape[-1]
        rows = builder.reshape(self.data, (self.steps * self.batch, width))
        weight = builder.transpose(self.weight, (1, 0))
        operation = "dense" if weight.is_constant else "matmul"
        made = builder.one(operation, [rows, weight], (rows.shape[0], columns), self.data.dtype)
        if self.bias is not None:
            made = builder.binary("add", made, self._outer_bias(builder, self.bias))
        return builder.reshape(made, (self.steps, self.batch, columns))

    def _outer_bias(self, builder: Builder, bias: Value) -> Value:
        """The biases that are added outside of the reset gate's product."""
        size = self.weight.shape[0]
        first = builder.slice(bias, (0,), (size,), (1,))
        second = builder.slice(bias, (size,), (size,), (1,))
        if self.cell.reset_after:
            kept = np.repeat(np.array([1, 1, 0], self.data.dtype), self.hidden)
            second = builder.binary("multiply", second, constant(kept))
        return builder.binary("add", first, second)

    def initial(self, builder: Builder) -> dict[str, Value]:
        """Each state before the first step, (N, H)."""
        zeros = constant(np.zeros((self.batch, self.hidden), self.data.dtype))
        return {name: self.states.get(name, zeros) for name in self.cell.states}

    def vectors(self, builder: Builder) -> dict[str, Value]:
        """The cell's vectors (H) by name."""
        found: dict[str, Value] = {}
        if self.cell.reset_after:
            zeros = constant(np.zeros(self.hidden, self.data.dtype))
            found[INNER_BIAS] = zeros
            if self.bias is not None:
                start = self.bias.size - self.hidden
                found[INNER_BIAS] = builder.slice(self.bias, (start,), (self.hidden,), (1,))
        if self.peepholes is not None:
            for number, name in enumerate(PEEPHOLES):
                start = number * self.hidden
                found[name] = builder.slice(self.peepholes, (start,), (self.hidden,), (1,))
        return found


def layer_of(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Layer:
    """The layer that a node of the operation computes."""
    given = dict(zip(node.attrs["inputs"], inputs, strict=True))
    attrs, data = node.attrs, given["data"]
    cell = Cell(
        attrs["cell"],
        attrs["activations"],
        attrs["clip"],
        attrs["reset_after"],
        attrs["coupled"],
        "peepholes" in given,
    )
    order = range(data.shape[0])
    return Layer(
        cell,
        given["recurrent"].shape[1],
        tuple(reversed(order) if attrs["reverse"] else order),
        data,
        given["weight"],
        builder.transpose(given["recurrent"], (1, 0)),
        given.get("bias"),
        _ending(given.get("lengths"), data.shape[0]),
        {name: given[name] for name in cell.states if name in given},
        given.get("peepholes"),
    )


def _ending(lengths: Value | None, steps: int) -> Value | None:
    """The lengths; None if they are known and no sequence ends early, which exporters write too."""
    if lengths is None or (lengths.data is not None and (lengths.data >= steps).all()):
        return None
    return lengths
