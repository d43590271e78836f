"""The cells of RNN, GRU and LSTM, written once for graphs and for tensor expressions.

The equations and the order of the gates are those of the ONNX operators: GRU has update, reset and candidate,
LSTM has input, output, forget and cell gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Term = Any
# The states that a cell carries from step to step; the first is also what a step gives.
HIDDEN, MEMORY = "hidden", "memory"
# What the second product of a GRU without `reset_after` reads.
_UPDATE, _RESET_HIDDEN = "update", "reset_hidden"
# Vectors of one number for each hidden unit, besides the weights.
INNER_BIAS = "inner_bias"
PEEPHOLES = ("peephole_input", "peephole_output", "peephole_forget")


class Arithmetic(Protocol):
    """Arithmetic on terms: values of a graph, or expressions of one element."""

    def binary(self, operation: str, left: Term, right: Term) -> Term:
        """The result of "add", "subtract", "multiply", "maximum" or "minimum"."""

    def activation(self, name: str, value: Term) -> Term:
        """The result of "sigmoid", "tanh" or "relu"."""

    def number(self, value: float) -> Term:
        """A constant operand."""

    def result(self, name: str, value: Term) -> Term:
        """A result of a phase, for what uses it in the same phase."""


@dataclass(frozen=True)
class PhaseInputs:
    """What a phase of a step may read, each at one hidden unit.

    Attributes:
        given: by gate, the input's part with all biases that are added to it.
        product: by gate, the recurrent product of this phase.
        named: states, results of earlier phases, and vectors by name.
    """

    given: Callable[[int], Term]
    product: Callable[[int], Term]
    named: Callable[[str], Term]


@dataclass(frozen=True)
class Phase:
    """One recurrent product and what is computed from it.

    Attributes:
        reads: name of the vector that is multiplied.
        gates: whose columns of the recurrent weight it is multiplied with.
        makes: names of what it computes, in this order.
        compute: gives them.
    """

    reads: str
    gates: tuple[int, ...]
    makes: tuple[str, ...]
    compute: Callable[[Arithmetic, PhaseInputs], Mapping[str, Term]]


@dataclass(frozen=True)
class Cell:
    """One cell and its options.

    Attributes:
        kind: "rnn", "gru" or "lstm".
        activations: in the standard's order.
        clip: bound of the input of an activation, None for none.
        reset_after: GRU only: the reset gate multiplies the product and not the state.
        coupled: LSTM only: the forget gate is one minus the input gate.
        peepholes: LSTM only: gates see the memory.
    """

    kind: str
    activations: tuple[str, ...]
    clip: float | None = None
    reset_after: bool = False
    coupled: bool = False
    peepholes: bool = False

    @property
    def gates(self) -> int:
        """Blocks of columns of its weights."""
        return {"rnn": 1, "gru": 3, "lstm": 4}[self.kind]

    @property
    def states(self) -> tuple[str, ...]:
        """Names of what is carried from step to step."""
        return (HIDDEN, MEMORY) if self.kind == "lstm" else (HIDDEN,)

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of the vectors that its phases read."""
        return (*((INNER_BIAS,) if self.reset_after else ()), *(PEEPHOLES if self.peepholes else ()))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of one step, in order."""
        if self.kind == "rnn":
            return (Phase(HIDDEN, (0,), (HIDDEN,), self._rnn),)
        if self.kind == "lstm":
            return (Phase(HIDDEN, (0, 1, 2, 3), (MEMORY, HIDDEN), self._lstm),)
        if self.reset_after:
            return (Phase(HIDDEN, (0, 1, 2), (HIDDEN,), self._gru_reset_after),)
        first = Phase(HIDDEN, (0, 1), (_UPDATE, _RESET_HIDDEN), self._gru_gates)
        return first, Phase(_RESET_HIDDEN, (2,), (HIDDEN,), self._gru_candidate)

    def _activated(self, math: Arithmetic, which: int, value: Term) -> Term:
        if self.clip is not None:
            value = math.binary("minimum", value, math.number(self.clip))
            value = math.binary("maximum", value, math.number(-self.clip))
        return math.activation(self.activations[which], value)

    def _gate(self, math: Arithmetic, inputs: PhaseInputs, gate: int, which: int) -> Term:
        return self._activated(math, which, math.binary("add", inputs.given(gate), inputs.product(gate)))

    def _rnn(self, math: Arithmetic, inputs: PhaseInputs) -> Mapping[str, Term]:
        return {HIDDEN: self._gate(math, inputs, 0, 0)}

    def _gru_reset_after(self, math: Arithmetic, inputs: PhaseInputs) -> Mapping[str, Term]:
        reset = self._gate(math, inputs, 1, 0)
        inner = math.binary("add", inputs.product(2), inputs.named(INNER_BIAS))
        sum_ = math.binary("add", inputs.given(2), math.binary("multiply", reset, inner))
        update = self._gate(math, inputs, 0, 0)
        return {HIDDEN: _mixed(math, update, self._activated(math, 1, sum_), inputs.named(HIDDEN))}

    def _gru_gates(self, math: Arithmetic, inputs: PhaseInputs) -> Mapping[str, Term]:
        reset = self._gate(math, inputs, 1, 0)
        return {
            _UPDATE: self._gate(math, inputs, 0, 0),
            _RESET_HIDDEN: math.binary("multiply", reset, inputs.named(HIDDEN)),
        }

    def _gru_candidate(self, math: Arithmetic, inputs: PhaseInputs) -> Mapping[str, Term]:
        candidate = self._gate(math, inputs, 2, 1)
        return {HIDDEN: _mixed(math, inputs.named(_UPDATE), candidate, inputs.named(HIDDEN))}

    def _lstm(self, math: Arithmetic, inputs: PhaseInputs) -> Mapping[str, Term]:
        def gated(gate: int, memory: Term, peephole: str) -> Term:
            value = math.binary("add", inputs.given(gate), inputs.product(gate))
            if self.peepholes:
                value = math.binary("add", value, math.binary("multiply", inputs.named(peephole), memory))
            return self._activated(math, 0, value)

        old = inputs.named(MEMORY)
        entering = gated(0, old, PEEPHOLES[0])
        if self.coupled:
            forgetting = math.binary("subtract", math.number(1.0), entering)
        else:
            forgetting = gated(2, old, PEEPHOLES[2])
        candidate = self._gate(math, inputs, 3, 1)
        kept, added = math.binary("multiply", forgetting, old), math.binary("multiply", entering, candidate)
        memory = math.result(MEMORY, math.binary("add", kept, added))
        leaving = gated(1, memory, PEEPHOLES[1])
        shown = math.activation(self.activations[2], memory)
        return {MEMORY: memory, HIDDEN: math.binary("multiply", leaving, shown)}


def _mixed(math: Arithmetic, update: Term, candidate: Term, old: Term) -> Term:
    fresh = math.binary("multiply", math.binary("subtract", math.number(1.0), update), candidate)
    return math.binary("add", fresh, math.binary("multiply", update, old))
