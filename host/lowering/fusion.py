"""Groups nodes into functions.

Nodes are visited from the outputs back. A node joins the group of its readers if all of them are in
one group and computing it there repeats no work. So a group has one result, and at most one anchor:
the operation whose loops the function has; before it come operations read once per element, behind
it elementwise ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from host.lowering.choices import Choices
from host.lowering.graph import Graph, Node, Value
from host.lowering.spec import Kind
from host.model import Layer

# Copies of one operation that a function may hold. Stages without loops of their own are written into each
# of their readers, so that a chain whose every step reads its input twice would grow as a power of two.
_MOST_COPIES = 64
# Kinds of decisions: whether a transpose shares a function with what is beside it, and whether an anchor's
# function computes what the anchor reads. 1: it does; 0: the value is stored between two functions.
TRANSPOSE, INPUTS = "transpose", "inputs"
_APART, _TOGETHER = 0, 1
# Types of what tensor cores read, rounded to halves on the way where it is not of that type.
_READ_BY_PRODUCTS = ("float16", "float32")
# Of the names of operations in what sites are alike in.
_ALIKE_CHARACTERS = 100


@dataclass(eq=False)
class Group:
    """Nodes that become one function.

    Attributes:
        nodes: in running order; the last one makes the result.
        anchor: the operation that shapes the function, if any.
        copies: how often each node stands in the function once all are written into their readers.
    """

    nodes: list[Node] = field(default_factory=list)
    anchor: Node | None = None
    copies: dict[Node, int] = field(default_factory=dict)

    @property
    def results(self) -> tuple[Value, ...]:
        """The values that the fused function returns: those of its last operation."""
        return self.nodes[-1].outputs

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Layers of the model's file that it computes, in their order."""
        return tuple(sorted({layer for node in self.nodes for layer in node.layers}))

    @property
    def is_view(self) -> bool:
        """Whether it only gives a tensor another shape."""
        return len(self.nodes) == 1 and self.nodes[0].op == "reshape"


def fuse(
    graph: Graph, choices: Choices | None = None, on_matrices: bool = False, on_gpu: bool = False
) -> list[Group]:
    """The functions of a graph, in running order.

    Args:
        graph: packed.
        choices: of a plan, which may keep apart what fits together.
        on_matrices: whether the processor multiplies matrices, whose operands it copies out of memory as they
            are. What such a product reads is then stored first.
        on_gpu: whether it is one whose programs of rows have all stages count these in the same order.
    """
    taken = choices or Choices()
    readers = graph.consumers()
    returned = set(graph.output_values())
    groups: dict[Node, Group] = {}
    finished: list[Group] = []
    for node in reversed(graph.nodes):
        group = _group_of_readers(node, readers, returned, groups)
        if (
            group is None
            or not _fits(node, group, readers, on_gpu)
            or (on_matrices and _feeds_a_product(node, group))
            or _kept_apart(node, group, readers, taken)
        ):
            group = Group()
            finished.append(group)
        group.nodes.insert(0, node)
        group.copies[node] = _copies(node, group, readers)
        groups[node] = group
        if node.spec.sharing.anchor:
            group.anchor = node
    # The last node of a group decides when it can run; groups were opened in reverse order of it.
    finished.reverse()
    return finished


def _group_of_readers(
    node: Node, readers: dict[Value, list[Node]], returned: set[Value], groups: dict[Node, Group]
) -> Group | None:
    if len(node.outputs) != 1 or node.output in returned:
        return None
    found = {groups[reader] for reader in readers.get(node.output, ())}
    return found.pop() if len(found) == 1 else None


def _copies(node: Node, group: Group, readers: dict[Value, list[Node]]) -> int:
    """How often the function of a group computes `node`: once if it has own loops or is the result."""
    if node.spec.sharing.anchor or len(node.outputs) != 1:
        return 1
    inside = (reader for reader in set(readers.get(node.output, ())) if reader in group.copies)
    return sum(group.copies[reader] * reader.inputs.count(node.output) for reader in inside) or 1


def _fits(node: Node, group: Group, readers: dict[Value, list[Node]], on_gpu: bool) -> bool:
    """Whether `node` can be computed inside the group of its readers."""
    if _copies(node, group, readers) > _MOST_COPIES:
        return False
    if node.spec.sharing.anchor:
        if group.anchor is not None:
            return False
        direct = all(_is_epilogue(reader, node) for reader in readers[node.output])
        return direct and _ends_with_epilogue(node, group) and _keeps_rows(node, node, group, on_gpu)
    if not node.spec.sharing.inlined:
        return False
    anchor = _anchor_before(node, readers)
    closed = group.anchor is not None or not _ends_with_epilogue(node, group)
    if anchor is not None and (closed or not _keeps_rows(anchor, node, group, on_gpu)):
        # Better as the end of the function before: there it works on values still in registers.
        return False
    return all(reader.spec.sharing.computes(reader, node) for reader in readers[node.output])


def _feeds_a_product(node: Node, group: Group) -> bool:
    """Whether `node` computes what the product of matrices of a group reads."""
    if not node.spec.is_elementwise or _only_moves(node):
        return False
    if group.anchor is None or not group.anchor.spec.sharing.matrices(group.anchor):
        return False
    between = {node}
    for member in group.nodes:
        if any(value.producer in between for value in member.inputs):
            if member is group.anchor:
                return True
            between.add(member)
    return False


def _only_moves(node: Node) -> bool:
    """Whether a product can read in its place what `node` reads: it widens, or repeats elements."""
    return node.op == "broadcast" or (node.op == "cast" and node.inputs[0].dtype in _READ_BY_PRODUCTS)


def _kept_apart(node: Node, group: Group, readers: dict[Value, list[Node]], choices: Choices) -> bool:
    """Whether a plan keeps `node` out of the group that it fits into."""
    turned = node.op == "transpose" or any(reader.op == "transpose" for reader in readers[node.output])
    read = group.anchor is not None and node.spec.is_elementwise
    if not turned and not read:
        return False
    ops = "+".join(member.op.removeprefix("relax.") for member in group.nodes)[:_ALIKE_CHARACTERS]
    shape = "x".join(map(str, node.output.shape))
    alike = f"{node.op.removeprefix('relax.')} of {shape} {node.output.dtype} into {ops}"
    return (
        choices.take(TRANSPOSE if turned else INPUTS, node, (_APART, _TOGETHER), _TOGETHER, alike) == _APART
    )


def _anchor_before(node: Node, readers: dict[Value, list[Node]]) -> Node | None:
    """The anchor whose function can end with `node`, if there is one."""
    for value in node.inputs:
        producer = value.producer
        if producer is None or readers[value] != [node] or value.shape != node.output.shape:
            continue
        if producer.spec.sharing.anchor:
            return producer
        before = _anchor_before(producer, readers) if producer.spec.is_elementwise else None
        if before is not None:
            return before
    return None


def _is_epilogue(reader: Node, node: Node) -> bool:
    return reader.spec.is_elementwise and reader.output.shape == node.output.shape


def _ends_with_epilogue(node: Node, group: Group) -> bool:
    """Whether everything behind `node` in the group takes each of its elements once and makes no others.

    A tile of the anchor is followed by what depends on that tile: elements that come from elsewhere
    (padding, other parts of a concatenation) or from other tiles (slices) would be computed nowhere.
    """
    behind = {node}
    for member in group.nodes:
        if any(value.producer in behind for value in member.inputs):
            if not member.spec.sharing.epilogue:
                return False
            behind.add(member)
    return True


def _keeps_rows(anchor: Node, node: Node, group: Group, on_gpu: bool) -> bool:
    """Whether what follows `node`, the anchor or behind it, leaves the elements of a row side by side.

    The function of a row-wise operation makes a row at a time: a transpose may move whole rows, no columns.
    On a GPU it may move rows only where there are as many of them along each dimension as before.
    """
    if anchor.spec.kind is not Kind.ROW_WISE:
        return True
    within = anchor.attrs.get("dims", 1)
    behind = {node}
    for member in group.nodes:
        if any(value.producer in behind for value in member.inputs):
            behind.add(member)
            if member.op == "transpose":
                if on_gpu and member.output.shape != member.inputs[0].shape:
                    return False
                rank = len(member.attrs["axes"])
                if tuple(member.attrs["axes"][-within:]) != tuple(range(rank - within, rank)):
                    return False
    return True
