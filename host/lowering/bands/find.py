"""Finds chains in a packed graph, and decides in how many rows a band each is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from host.lowering.bands.chain import Argument, Bands, Before, Chain, Made, Part, Read, Scalar, Step
from host.lowering.bands.choice import ROWS_KIND, Sizes, options_of, own_rows
from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.fusion import Group, fuse
from host.lowering.graph import Graph, Node, Shape, Value
from host.lowering.rebuild import rebuild
from targets import HardwareModel

CHAIN = "chain"
_FIRST, _SECOND = "packed_dense", "depthwise_conv"


def chain_in_bands(graph: Graph, hardware: HardwareModel, choices: Choices | None = None) -> Graph:
    """A graph in which chains are one operation each where that is estimated to pay; never on a GPU.

    A chain is a 1x1 convolution, the depthwise one that alone reads it, and perhaps a 1x1 convolution that
    alone reads that, each with what shares its function.

    Args:
        graph: packed.
        hardware: what the estimate is made for.
        choices: of a plan, which may take other bands than the estimate, or none.
    """
    if hardware.gpu is not None:
        return graph
    taken = choices or Choices()
    groups = [group for group in fuse(graph, taken.fresh()) if not group.is_view]
    found: dict[Node, tuple[Chain, tuple[Value, ...]]] = {}
    finder = _Finder(graph, {node: group for group in groups for node in group.nodes})
    chained: set[Group] = set()
    for group in groups:
        links = finder.links(group)
        # A product between two depthwise convolutions ends one chain or begins the next, and is not in both.
        if links is None or not chained.isdisjoint(links.groups):
            continue
        made = _decided(links, hardware, taken)
        if made is not None:
            found[links.groups[-1].nodes[-1]] = made
            chained.update(links.groups)

    replaced: dict[Value, Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node not in found:
            outputs = builder.copy(node, inputs)
            replaced.update(zip(node.outputs, outputs, strict=True))
            return outputs
        chain, arguments = found[node]
        first = [
            _as_image(builder, replaced.get(one, one), chain, number) for number, one in enumerate(arguments)
        ]
        result = builder.one(CHAIN, first, chain.result, node.output.dtype, chain=chain)
        made = builder.reshape(result, node.output.shape)
        replaced[node.output] = made
        return made

    return rebuild(graph, rule) if found else graph


def _as_image(builder: Builder, value: Value, chain: Chain, number: int) -> Value:
    """An argument in the shape in which the chain reads it: images have four dimensions."""
    images = (
        read.shape
        for part in chain.parts
        for step in part.steps
        for read in step.reads
        if isinstance(read, Argument) and read.number == number and read.rows
    )
    # All read it in one width, or there were no chain.
    shape = next(images, None)
    return value if shape is None else builder.reshape(value, (1, -1, *shape[2:]))


@dataclass(frozen=True, eq=False)
class _Links:
    """The functions of a chain, and the shapes of the images that they make.

    Attributes:
        groups: two or three.
        joints: what each but the last makes for the next one.
        height, width: of the image of the first.
        made: rows and columns of the image of the others.
    """

    groups: tuple[Group, ...]
    joints: tuple[Value, ...]
    height: int
    width: int
    made: tuple[int, int]

    @property
    def depthwise(self) -> Node:
        """The anchor of the second function."""
        anchor = self.groups[1].anchor
        assert anchor is not None, "it was found by its anchor"
        return anchor

    def bands(self, rows: int) -> Bands:
        """Bands of a number of rows of the result."""
        node = self.depthwise
        kernel = (node.inputs[1].shape[0] - 1) * node.attrs["dilation"][0] + 1
        return Bands(
            self.height, self.made[0], rows, kernel, node.attrs["strides"][0], node.attrs["padding"][0]
        )


class _Finder:
    """Finds the functions that make a chain."""

    def __init__(self, graph: Graph, groups: Mapping[Node, Group]) -> None:
        self._readers = graph.consumers()
        self._returned = set(graph.output_values())
        self._groups = groups

    def links(self, first: Group) -> _Links | None:
        """The chain that begins with a function; None where there is none."""
        if not _is(first, _FIRST):
            return None
        second, joint = self._next(first, _SECOND)
        if second is None or joint is None:
            return None
        anchor = second.anchor
        assert anchor is not None
        shape, made = anchor.inputs[0].shape, anchor.output.shape
        if (
            len(shape) != 4
            or shape[0] != 1
            or made[-1] != shape[-1]
            or {"taps", "fill"} & anchor.attrs.keys()
        ):
            return None
        third, other = self._next(second, _FIRST)
        links = _Links((first, second), (joint,), shape[1], shape[2], (made[1], made[2]))
        if third is not None and other is not None:
            links = replace(links, groups=(*links.groups, third), joints=(joint, other))
        return links

    def _next(self, group: Group, op: str) -> tuple[Group | None, Value | None]:
        """The function that alone reads what another makes, as its anchor's first input, and what that is."""
        value = group.results[0]
        while len(group.results) == 1 and value not in self._returned:
            readers = self._readers.get(value, [])
            if len(readers) != 1:
                break
            reader = readers[0]
            if reader.op == "reshape":
                value = reader.output
                continue
            found = self._groups.get(reader)
            if found is None or found.anchor is not reader or not _is(found, op):
                break
            return (
                (found, value)
                if reader.inputs.count(value) == 1 and reader.inputs[0] is value
                else (None, None)
            )
        return None, None


def _is(group: Group, op: str) -> bool:
    """Whether a function is an operation of that name in fp32 with elementwise ones."""
    return (
        group.anchor is not None
        and group.anchor.op == op
        and all(
            (node is group.anchor or (node.spec.is_elementwise and node.spec.write is not None))
            and len(node.outputs) == 1
            and node.output.dtype == "float32"
            and all(value.dtype == "float32" for value in node.inputs)
            for node in group.nodes
        )
    )


def _decided(
    links: _Links, hardware: HardwareModel, choices: Choices
) -> tuple[Chain, tuple[Value, ...]] | None:
    """The chain in the bands that are taken, with its arguments; None where its functions stay apart."""
    first = links.groups[0].anchor
    assert first is not None
    depth, channels = first.inputs[0].shape[-1], links.depthwise.inputs[0].shape[-1]
    after = links.made[1] * channels if len(links.groups) > 2 else 0
    sizes = Sizes(links.width * channels, after, depth)
    options = options_of(links.bands, sizes, hardware)
    # What no bands can be made of has no decision.
    usable = [rows for rows in options if _chain(links, rows) is not None]
    if not usable:
        return None
    own = own_rows([links.bands(rows) for rows in usable], sizes, hardware)
    kernel = "x".join(map(str, links.depthwise.inputs[1].shape[:2]))
    stride = links.depthwise.attrs["strides"][0]
    alike = f"{links.height}x{links.width}, {depth} to {channels}, {kernel} with stride {stride}"
    if len(links.groups) > 2:
        alike += f", to {links.groups[2].results[0].shape[-1]}"
    rows = choices.take(ROWS_KIND, links.depthwise, (0, *usable), own, alike)
    return _chain(links, rows) if rows else None


def _chain(links: _Links, rows: int) -> tuple[Chain, tuple[Value, ...]] | None:
    """The chain in bands of a number of rows; None where an operation reads what no band has."""
    bands = links.bands(rows)
    writer = _Parts()
    parts = []
    for number, group in enumerate(links.groups):
        image = (links.height, links.width) if number == 0 else links.made
        high = bands.read if number == 0 else bands.rows
        before: Shape = ()
        if number:
            width = links.width if number == 1 else links.made[1]
            before = (1, bands.read if number == 1 else bands.rows, width, links.joints[number - 1].shape[-1])
        joint = links.joints[number - 1] if number else None
        part = writer.part(group, image, high, joint, before)
        if part is None:
            return None
        parts.append(part)
    result = (1, *links.made, parts[-1].shape[-1])
    return Chain(tuple(parts), bands, result), tuple(writer.arguments)


@dataclass(eq=False)
class _Parts:
    """Writes the functions of a chain for one band.

    Attributes:
        arguments: what they read from outside, each once.
    """

    arguments: dict[Value, int] = field(default_factory=dict)
    _shapes: dict[Value, Shape] = field(default_factory=dict)

    def part(
        self, group: Group, image: tuple[int, int], rows: int, joint: Value | None, before: Shape
    ) -> Part | None:
        """A function for one band; None where it reads something that is neither an image nor for all pixels.

        Args:
            group: the function for the whole image.
            image: rows and columns of what it makes.
            rows: of what it makes for a band.
            joint: what it reads of the function before; None for the first.
            before: the shape of that for a band.
        """
        steps: list[Step] = []
        places: dict[Value, int] = {}
        for node in group.nodes:
            reads: list[Read] = []
            for position, value in enumerate(node.inputs):
                read: Read | None
                if value is joint:
                    read = Before()
                elif value in places:
                    read = Made(places[value])
                else:
                    weight = node is group.anchor and position > 0
                    read = self._outside(value, image, rows, weight)
                if read is None:
                    return None
                reads.append(read)
            shape = _of_band(node.output.shape, image, rows)
            if shape is None:
                return None
            attrs = dict(node.attrs)
            if node is group.anchor and "padding" in attrs:
                _, left, _, right = attrs["padding"]
                attrs["padding"] = (0, left, 0, right)
            places[node.output] = len(steps)
            steps.append(
                Step(node.spec, tuple(reads), tuple(sorted(attrs.items())), shape, node.output.dtype)
            )
        return Part(tuple(steps), before)

    def _outside(self, value: Value, image: tuple[int, int], rows: int, weight: bool) -> Read | None:
        number = value.scalar()
        if number is not None:
            return Scalar(number, value.shape, value.dtype)
        if weight or prod(value.shape[:-1]) == 1:
            return self._argument(value, value.shape, rows=False)
        shape = None if value.is_constant else _of_band(value.shape, image, rows)
        return None if shape is None else self._argument(value, shape, rows=True)

    def _argument(self, value: Value, shape: Shape, rows: bool) -> Argument | None:
        """None where another part reads the same elements as an image of another width, or as a weight."""
        alike = shape[2:] if rows else shape
        if self._shapes.setdefault(value, alike) != alike:
            return None
        number = self.arguments.setdefault(value, len(self.arguments))
        return Argument(number, shape, value.dtype, rows)


def _of_band(shape: Shape, image: tuple[int, int], rows: int) -> Shape | None:
    """The shape of a band of an image; None for what is no image of that size."""
    return (1, rows, image[1], shape[-1]) if shape and prod(shape[:-1]) == prod(image) else None
