"""A recurrent layer as one function: a loop over the steps around the products and the cell.

Hidden units lie in B blocks of L, as the weights are packed; H = B L. The function is unscheduled: rule
`recurrent` of the schedule families tiles what is inside the loop.

Where sequences have lengths, a step behind the end of a sequence keeps its states and gives zeros, as the
ONNX standard has it. A step behind the end of all sequences computes nothing. The last states of a sequence
without steps are zeros, as ONNX Runtime has it, and not the first states. The function gets the steps that a
sequence lacks and not its length: kernels are measured, and instructions counted, with zeros for integers,
and the sequences of such a call are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from host.lowering.expressions import math
from host.lowering.graph import Node
from host.lowering.recurrent.cells import Cell, Phase, PhaseInputs
from host.lowering.script import function_of_script

_BINARY = {
    "add": tirx.Add,
    "subtract": tirx.Sub,
    "multiply": tirx.Mul,
    "maximum": tirx.Max,
    "minimum": tirx.Min,
}
_ACTIVATIONS = {
    "relu": lambda value: tirx.Max(value, math.number(0.0)),
    "tanh": math.tanh,
    "sigmoid": math.sigmoid,
}
# Writes the expression of one element. Every use of a term writes its own, because TensorIR does not allow
# one name to be bound in two places; LLVM computes equal ones once.
_Write = Callable[[], Any]


@dataclass(frozen=True)
class _ElementArithmetic:
    """On fp32 expressions of one element.

    Attributes:
        computed: results that blocks before have stored, by name.
    """

    computed: Mapping[str, _Write]

    def binary(self, operation: str, left: _Write, right: _Write) -> _Write:
        return lambda: _BINARY[operation](left(), right())

    def activation(self, name: str, value: _Write) -> _Write:
        return lambda: _ACTIVATIONS[name](value())

    def number(self, value: float) -> _Write:
        return lambda: math.number(value)

    def result(self, name: str, value: _Write) -> _Write:
        return self.computed.get(name, value)


@dataclass(frozen=True)
class LoopShape:
    """The extents of a loop.

    Attributes:
        steps, batch: of the sequences.
        blocks, lanes: hidden units are `blocks` times `lanes`.
        has_lengths: whether each sequence has a length of its own; what it lacks is an input of the function.
    """

    steps: int
    batch: int
    blocks: int
    lanes: int
    has_lengths: bool = False

    @property
    def hidden(self) -> int:
        """Hidden units, rounded up to whole vectors."""
        return self.blocks * self.lanes


def recurrent_function(node: Node) -> tirx.PrimFunc:
    """The function of a "recurrent_loop" node; arguments are its inputs and then its outputs.

    All are fp32 but the steps that each sequence lacks (N, 1) and the least of them (1), which are int32.
    """
    cell, shape = node.attrs["cell"], node.attrs["shape"]
    text = _text(cell, shape, node.attrs["reverse"])
    compute = {
        f"compute_{name}": _computed(cell, shape, number, name)
        for number, phase in enumerate(cell.phases)
        for name in phase.makes
    }
    return function_of_script(text, **compute)


def _computed(cell: Cell, shape: LoopShape, number: int, result: str) -> Any:
    """Gives the element of a result of a phase, from the buffers and the indices of the element."""
    phase = cell.phases[number]
    before = phase.makes[: phase.makes.index(result)]

    def element(indices: tuple[Any, ...], buffers: dict[str, Any]) -> Any:
        step, row, block, lane, unit = indices

        def named(name: str) -> _Write:
            if name in cell.vectors:
                return lambda: buffers[name][block, lane]
            return lambda: buffers[_buffer_of(cell, name)][row, unit]

        inputs = PhaseInputs(
            given=lambda gate: lambda: buffers["given"][step, row, gate, block, lane],
            product=lambda gate: lambda: buffers[f"total_{number}"][row, block, gate - phase.gates[0], lane],
            named=named,
        )
        stored = {name: lambda name=name: buffers[f"new_{name}"][row, unit] for name in before}
        computed = phase.compute(_ElementArithmetic(stored), inputs)[result]()
        if not shape.has_lengths or result not in cell.states:
            return computed
        lasts = step < shape.steps - buffers["missing"][row, 0]
        return tirx.Select(lasts, computed, buffers[result][row, unit])

    return element


def _buffer_of(cell: Cell, name: str) -> str:
    """The buffer of a state as it was, or of what an earlier phase has computed."""
    return name if name in cell.states else f"new_{name}"


def _text(cell: Cell, shape: LoopShape, reverse: bool) -> str:
    """The loop over all steps as text of TVMScript."""
    steps, batch, blocks, lanes, hidden = shape.steps, shape.batch, shape.blocks, shape.lanes, shape.hidden
    lines = ["@T.prim_func(s_tir=True, private=True)", "def function("]
    lines += [f"    given: {_buffer(steps, batch, cell.gates, blocks, lanes)},"]
    for number, phase in enumerate(cell.phases):
        lines += [f"    weight_{number}: {_buffer(blocks, hidden, len(phase.gates), lanes)},"]
    lines += [f"    {name}: {_buffer(blocks, lanes)}," for name in cell.vectors]
    lines += [f"    first_{name}: {_buffer(batch, hidden)}," for name in cell.states]
    if shape.has_lengths:
        lines += [f'    missing: T.Buffer(({batch}, 1), "int32"), least: T.Buffer((1,), "int32"),']
    lines += [f"    sequence: {_buffer(steps, batch, hidden)},"]
    lines += [f"    last_{name}: {_buffer(batch, hidden)}," for name in last_states(cell, shape)]
    lines += [") -> None:"]
    made = [f"new_{name}" for phase in cell.phases for name in phase.makes]
    for name in (*cell.states, *made):
        lines += [f'    {name} = T.sblock_alloc_buffer(({batch}, {hidden}), "float32")']
    for number, phase in enumerate(cell.phases):
        sizes = f"({batch}, {blocks}, {len(phase.gates)}, {lanes})"
        lines += [f'    total_{number} = T.sblock_alloc_buffer({sizes}, "float32")']
    for name in cell.states:
        lines += _copy(4, f"start_{name}", f"{name}[vn, vj] = first_{name}[vn, vj]", shape)
    lines += [f"    for t in range({steps}):", '        with T.sblock("step"):']
    lines += [f"            vt = T.axis.opaque({steps}, t)"]
    step = f"{steps - 1} - vt" if reverse else "vt"
    depth = 12
    if shape.has_lengths:
        lines += [f"            if {step} < {steps} - least[0]:"]
        depth = 16
    lines += [" " * depth + 'with T.sblock("cell"):']
    for number, phase in enumerate(cell.phases):
        lines += [" " * (depth + 4) + line for line in _phase(cell, shape, number, phase, step)]
    for name in cell.states:
        lines += _copy(depth, f"carry_{name}", f"{name}[vn, vj] = new_{name}[vn, vj]", shape)
    given = f"new_{cell.states[0]}[vn, vj]"
    if shape.has_lengths:
        given = f"T.Select({step} < {steps} - missing[vn, 0], {given}, T.float32(0))"
    lines += _copy(12, "output", f"sequence[{step}, vn, vj] = {given}", shape)
    for name in last_states(cell, shape):
        last = f"{name}[vn, vj]"
        if shape.has_lengths:
            last = f"T.Select(missing[vn, 0] < {steps}, {last}, T.float32(0))"
        lines += _copy(4, f"finish_{name}", f"last_{name}[vn, vj] = {last}", shape)
    return "\n".join(lines) + "\n"


def last_states(cell: Cell, shape: LoopShape) -> tuple[str, ...]:
    """The states that are outputs of their own; the hidden one is in the sequence if no row ends early."""
    return cell.states if shape.has_lengths else cell.states[1:]


def _buffer(*sizes: int) -> str:
    return f'T.Buffer(({", ".join(map(str, sizes))},), "float32")'


def _copy(indent: int, name: str, statement: str, shape: LoopShape) -> list[str]:
    """Text of a block over (N, H)."""
    lines = [
        f"for n, j in T.grid({shape.batch}, {shape.hidden}):",
        f'    with T.sblock("{name}"):',
        '        vn, vj = T.axis.remap("SS", [n, j])',
        f"        {statement}",
    ]
    return [" " * indent + line for line in lines]


def _phase(cell: Cell, shape: LoopShape, number: int, phase: Phase, step: str) -> list[str]:
    """Text of a product and of what is computed from it."""
    gates, lanes = len(phase.gates), shape.lanes
    source = f"{_buffer_of(cell, phase.reads)}[vn, vk]"
    total = f"total_{number}[vn, vb, vg, vl]"
    earlier = [name for other in cell.phases[:number] for name in other.makes]
    lines = [
        f"for n, b, g, l, k in T.grid({shape.batch}, {shape.blocks}, {gates}, {lanes}, {shape.hidden}):",
        f'    with T.sblock("product_{number}"):',
        '        vn, vb, vg, vl, vk = T.axis.remap("SSSSR", [n, b, g, l, k])',
        "        with T.init():",
        f"            {total} = T.float32(0)",
        f"        {total} = {total} + {source} * weight_{number}[vb, vk, vg, vl]",
    ]
    for position, name in enumerate(phase.makes):
        stored = [f"new_{other}" for other in (*earlier, *phase.makes[:position])]
        missing = ["missing"] if shape.has_lengths else []
        names = ["given", f"total_{number}", *cell.vectors, *cell.states, *stored, *missing]
        buffers = ", ".join(f'"{name}": {name}' for name in names)
        unit = f"vb * {lanes} + vl"
        lines += [
            f"for n, b, l in T.grid({shape.batch}, {shape.blocks}, {lanes}):",
            f'    with T.sblock("cell_{name}"):',
            '        vn, vb, vl = T.axis.remap("SSS", [n, b, l])',
            f"        new_{name}[vn, {unit}] = compute_{name}(({step}, vn, vb, vl, {unit}), {{{buffers}}})",
        ]
    return lines
