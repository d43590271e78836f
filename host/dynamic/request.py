"""What a user asks for: which dimension is open, and its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from host.errors import ShapeError
from host.importers.pins import DeclaredInput

# A dimension as given: its least and its greatest size.
Span = tuple[int, int]


@dataclass(frozen=True)
class Dimension:
    """The one dimension that a bundle leaves open.

    Attributes:
        name: the model's symbol for it.
        low, high: least and greatest size, both served.
        shapes: shape by input; None stands for the open dimension.
    """

    name: str
    low: int
    high: int
    shapes: Mapping[str, tuple[int | None, ...]]

    def shapes_at(self, length: int) -> dict[str, tuple[int, ...]]:
        """Shape by input at one length."""
        return {
            name: tuple(length if size is None else size for size in shape)
            for name, shape in self.shapes.items()
        }


def dimension_of(
    model: str,
    declared: Sequence[DeclaredInput],
    shapes: Mapping[str, Sequence[int]],
    ranges: Mapping[str, Sequence[Span]],
) -> Dimension:
    """The open dimension of a request.

    Args:
        model: file name, for messages.
        declared: the model's inputs.
        shapes: fixed shapes by input, or the size of a symbol by its name.
        ranges: by symbol one span (`seq=1..512`), or by input one for each dimension (`ids=1,1..512`).

    Raises:
        ShapeError: no such input or symbol, more than one open dimension, or a dimension without a size.
    """
    inputs = {entry.name: entry for entry in declared}
    sizes = _given(model, inputs, shapes, ranges)
    open_ones = sorted({symbol for symbol, (low, high) in sizes.items() if low != high})
    if not open_ones:
        raise ShapeError(f"{model}: --shape gives a range that holds one length: give it as a number")
    if len(open_ones) != 1:
        raise ShapeError(
            f"{model}: --shape leaves {len(open_ones)} dimensions open ({', '.join(open_ones)}), "
            "a bundle serves a range of one: give the others a number"
        )
    name = open_ones[0]
    low, high = sizes[name]
    if not 1 <= low <= high:
        raise ShapeError(f"{model}: --shape {name}={low}..{high} is no range of positive sizes")
    resolved = {
        entry.name: tuple(_size(model, entry, i, sizes, name) for i in range(len(entry.dimensions or ())))
        for entry in declared
    }
    return Dimension(name, low, high, resolved)


def _symbol(entry: DeclaredInput, index: int) -> int | str:
    """A fixed size, or the name under which an open dimension is known."""
    size = (entry.dimensions or ())[index]
    return size if size != "" else f"{entry.name}.{index}"


def _given(
    model: str,
    inputs: Mapping[str, DeclaredInput],
    shapes: Mapping[str, Sequence[int]],
    ranges: Mapping[str, Sequence[Span]],
) -> dict[str, Span]:
    """The span of every symbol that was given one."""
    symbols = {
        str(size) for entry in inputs.values() for size in entry.dimensions or () if isinstance(size, str)
    }
    spans: dict[str, Sequence[Span]] = {
        name: [(size, size) for size in shape] for name, shape in shapes.items()
    }
    spans |= ranges
    sizes: dict[str, Span] = {}
    for name, given in spans.items():
        if name in inputs:
            _from_input(model, inputs[name], given, sizes)
        elif name in symbols and len(given) == 1:
            _note(model, name, given[0], sizes)
        else:
            known = ", ".join([*inputs, *sorted(symbols - {""})])
            raise ShapeError(f"{model}: --shape names {name!r}, but inputs and dimensions are {known}")
    return sizes


def _from_input(model: str, entry: DeclaredInput, given: Sequence[Span], sizes: dict[str, Span]) -> None:
    if entry.dimensions is None or len(entry.dimensions) != len(given):
        raise ShapeError(
            f"{model}: --shape {entry.name} has {len(given)} dimensions, the model wants "
            f"{len(entry.dimensions or ())}"
        )
    for index, span in enumerate(given):
        symbol = _symbol(entry, index)
        if isinstance(symbol, str):
            _note(model, symbol, span, sizes)
        elif span != (symbol, symbol):
            raise ShapeError(f"{model}: dimension {index} of {entry.name} is fixed at {symbol}, not open")


def _note(model: str, symbol: str, span: Span, sizes: dict[str, Span]) -> None:
    if sizes.setdefault(symbol, span) != span:
        raise ShapeError(f"{model}: dimension {symbol!r} was given two sizes: give it once")


def _size(model: str, entry: DeclaredInput, index: int, sizes: Mapping[str, Span], name: str) -> int | None:
    symbol = _symbol(entry, index)
    if isinstance(symbol, int):
        return symbol
    if symbol == name:
        return None
    if symbol not in sizes:
        raise ShapeError(
            f"{model}: dimension {symbol!r} of input {entry.name!r} is open too: give it with --shape "
            f"{symbol}=N"
        )
    return sizes[symbol][0]
