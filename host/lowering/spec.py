"""What the compiler knows of an operation: one `OpSpec`, found by listing the modules of `host.lowering.ops`.

Passes ask a node's specification instead of keeping lists of names. Most answers follow from the kind of an
operation; a specification gives the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from host.errors import LoweringError

if TYPE_CHECKING:
    from tvm import tirx

    from host.lowering.builder import Builder
    from host.lowering.choices import Choices
    from host.lowering.expressions.stage import Stage
    from host.lowering.graph import Graph, Node, Value
    from host.lowering.passes.permutations.channels import Channels
    from host.lowering.passes.permutations.sink_permutations import PermutationWalk
    from host.lowering.passes.sink_reshapes import ReshapeWalk
    from host.lowering.passes.sink_transposes import Ordered, TransposeWalk
    from host.lowering.reader.call import OperatorCall
    from targets import HardwareModel

# Translates one relax call; returns None to leave it to TVM's own legalisation.
Reader = Callable[["Builder", "OperatorCall"], "Value | tuple[Value, ...] | None"]
# Defines a node's outputs on the stage of its function.
Writer = Callable[["Stage", "Node"], None]
# A node's function, which takes its inputs and then its outputs.
FunctionWriter = Callable[["Node"], "tirx.PrimFunc"]
# The output on numpy arrays: inputs, attributes, shape and type of the output. None leaves it to the device.
Fold = Callable[[Sequence[np.ndarray], Mapping[str, Any], tuple[int, ...], str], Any]
# A simpler form of a node with these inputs, or None.
Simplification = Callable[["Builder", "Node", "tuple[Value, ...]"], "Value | None"]
# The operation in place of the operations that end with this node, or None.
Recogniser = Callable[["Builder", "Node"], "Value | None"]
TransposeRule = Callable[["TransposeWalk", "Node"], "Ordered | None"]
ReshapeRule = Callable[["ReshapeWalk", "Node"], "Value | None"]
PermutationRule = Callable[["PermutationWalk", "Node"], "Channels | None"]


class Kind(enum.Enum):
    """What passes may assume of an operation whose specification has no rule for them.

    Attributes:
        ELEMENTWISE: inputs broadcast together; an element follows from one element of each.
        REDUCTION: of the dimensions `axes`; they stay as 1 with `keepdims`.
        ROW_WISE: along the last dimension, or the last `dims`; keeps the shape.
        OTHER: nothing.
    """

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    ROW_WISE = "row-wise"
    OTHER = "other"


@dataclass(frozen=True)
class Fusion:
    """How an operation shares a function with others.

    Attributes:
        anchor: whether the function's loops are its own. A function has one anchor at most.
        inlined: whether what reads it can compute it, element by element.
        epilogue: whether it may stand behind an anchor: it takes every element once and makes no others.
        computes: whether it (the first node) computes one that it reads (the second) element by element.
        matrices: whether a node of it is a product of matrices that tensor cores compute; they read memory
            alone.
    """

    anchor: bool = False
    inlined: bool = False
    epilogue: bool = False
    computes: Callable[[Node, Node], bool] = lambda reader, node: False
    matrices: Callable[[Node], bool] = lambda node: False


_FUSION = {
    Kind.ELEMENTWISE: Fusion(
        inlined=True, epilogue=True, computes=lambda reader, node: reader.output.size == node.output.size
    ),
    Kind.REDUCTION: Fusion(anchor=True, computes=lambda reader, node: reader.inputs[0] is node.output),
    Kind.ROW_WISE: Fusion(anchor=True, computes=lambda reader, node: reader.inputs[0] is node.output),
    Kind.OTHER: Fusion(),
}


class Phase(enum.Enum):
    """A point of lowering at which passes of operations run.

    Attributes:
        READ: the graph is as the model says, with arithmetic in the types that are computed with.
        SIMPLIFIED: layouts are chosen, constants are folded, and weights are as the model has them.
        PACKED: weights are packed; nothing else is rewritten any more.
    """

    READ = "read"
    SIMPLIFIED = "simplified"
    PACKED = "packed"


@dataclass(frozen=True)
class GraphPass:
    """A rewrite of the whole graph that makes an operation.

    Attributes:
        phase: when it runs; passes of one phase run in the order of their specifications.
        run: the rewritten graph, from the graph and the processor that it is for; and from the choices of a
            plan, where the pass decides something.
        approximate: whether results are less exact than those of what it replaces. Such passes are left out
            where tensors lie in memory as bfloat16, and on demand.
        one_length: whether what it makes holds for the sizes of the graph alone. Such passes are left out of
            models for a range of lengths.
        half: the type of half precision in which tensors have to lie in memory for it; "" for any.
        decides: whether `run` takes `choices`, which have what was packed for other functions too.
        single: whether what it makes has tensors of single precision in memory. Such passes are left out of
            models whose tensors lie in half precision.
    """

    phase: Phase
    run: Callable[..., Graph]
    approximate: bool = False
    one_length: bool = False
    half: str = ""
    decides: bool = False
    single: bool = False

    def apply(self, graph: Graph, hardware: HardwareModel, choices: Choices) -> Graph:
        """The rewritten graph."""
        if self.decides:
            return self.run(graph, hardware, choices=choices)
        return self.run(graph, hardware)


@dataclass(frozen=True, eq=False)
class OpSpec:
    """One operation of the graph, or a relax operator that is read as several operations.

    Attributes:
        name: of the operation, unique.
        kind: what passes may assume of it.
        read: readers of the relax operators that become this operation, by name without "relax.".
        write: its tensor expression; without one only TVM's legalisation can write it.
        fold: its output on constants; without one it is left to the device.
        simplify: a simpler form in any layout.
        recognise: finds subgraphs that are this operation, each from its last node.
        passes: make this operation in a walk over the whole graph.
        fusion: how it shares functions, where that does not follow from its kind.
        sink_transpose: how a transpose before it becomes one behind it, where that does not follow.
        sink_reshape: the same of a reshape.
        sink_permutation: where the channels of its output lie, for those of its inputs, where that does not
            follow.
        output_type: of the elements, where it is not that of the inputs.
        function: in place of `write`, the whole unscheduled function, for what is no tensor expression; the
            operation shares it with no other. Tensors stay in single precision.
        on_cpu: whether its function runs on the CPU in a model for a GPU.
        reads_halves: whether its function reads tensors of half precision as they lie in memory; other
            operations are given them in single precision.
    """

    name: str
    kind: Kind = Kind.OTHER
    read: Mapping[str, Reader] = field(default_factory=dict)
    write: Writer | None = None
    fold: Fold | None = None
    simplify: Simplification | None = None
    recognise: tuple[Recogniser, ...] = ()
    passes: tuple[GraphPass, ...] = ()
    fusion: Fusion | None = None
    sink_transpose: TransposeRule | None = None
    sink_reshape: ReshapeRule | None = None
    sink_permutation: PermutationRule | None = None
    output_type: str | None = None
    function: FunctionWriter | None = None
    on_cpu: bool = False
    reads_halves: bool = False

    @property
    def sharing(self) -> Fusion:
        """How it shares functions with other operations."""
        return self.fusion or _FUSION[self.kind]

    @property
    def is_elementwise(self) -> bool:
        """Whether an element of the output follows from one element of each input."""
        return self.kind is Kind.ELEMENTWISE


@dataclass(frozen=True, eq=False)
class OperatorTable:
    """The operations that a graph may hold.

    Attributes:
        specs: by name.
    """

    specs: Mapping[str, OpSpec]

    @classmethod
    def of(cls, specs: Iterable[OpSpec]) -> OperatorTable:
        """A table of these operations.

        Raises:
            LoweringError: two have one name, or read one relax operator.
        """
        table: dict[str, OpSpec] = {}
        read: dict[str, str] = {}
        for spec in specs:
            if spec.name in table:
                raise LoweringError(f"Two specifications have the name {spec.name!r}; rename one of them.")
            table[spec.name] = spec
            for name in spec.read:
                if name in read:
                    both = f"{read[name]!r} and {spec.name!r}"
                    raise LoweringError(f"Operations {both} both read relax.{name}; remove one reader.")
                read[name] = spec.name
        return cls(table)

    def with_specs(self, *specs: OpSpec) -> OperatorTable:
        """This table and more operations.

        Raises:
            LoweringError: see `of`.
        """
        return OperatorTable.of((*self.specs.values(), *specs))

    def __getitem__(self, name: str) -> OpSpec:
        """The specification of an operation; of any "relax.*", which TVM's legalisation may know.

        Raises:
            LoweringError: there is no such operation.
        """
        if name in self.specs:
            return self.specs[name]
        if name.startswith("relax."):
            return OpSpec(name)
        raise LoweringError(f"There is no operation {name!r}; add its specification to host/lowering/ops.")

    @cached_property
    def readers(self) -> Mapping[str, Reader]:
        """Readers by the relax operator's name without "relax."."""
        return {name: reader for spec in self.specs.values() for name, reader in spec.read.items()}

    @cached_property
    def recognisers(self) -> tuple[Recogniser, ...]:
        """The recognisers, which find operations in subgraphs."""
        return tuple(recogniser for spec in self.specs.values() for recogniser in spec.recognise)

    @cached_property
    def passes(self) -> tuple[GraphPass, ...]:
        """The passes that make operations in a walk over the whole graph."""
        return tuple(one for spec in self.specs.values() for one in spec.passes)
