"""Rows of any size as rows of whole vectors, so that what reduces them has no remainder."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from host.lowering.expressions.stage import Element, Expression, Indices, Stage, load

# Rows are lengthened to a multiple of this, the longest vector of fp32 elements of any board.
_UNIT = 16
# Rows that are not worth it.
_SHORT = 2 * _UNIT


class WholeVectors:
    """How a row of `size` elements is read as one of `length`.

    The last unit ends where the row ends, so that it is read like any other; the elements that it shares
    with the unit before are replaced by a value of no weight. With 37 elements in units of 16: 0 to 31,
    eleven times that value, 32 to 36. A copy of the row that is filled up at its end would do as well,
    but is written element by element there, and read as a vector right after that, which processors wait
    for. It is what is left where one function serves rows of any length, since a unit needs a whole one
    before it.

    Args:
        stage: of the function.
        size: elements of a row.
        dtype: of the elements.

    Attributes:
        length: of the row as it is read; `size` itself where there is nothing to gain.
    """

    def __init__(self, stage: Stage, size: int, dtype: str) -> None:
        whole = dtype != "float32" or size <= _SHORT or size % (_UNIT // 2) == 0
        self.length = size if whole else -(-size // _UNIT) * _UNIT
        self._stage = stage
        self._size = size

    def read(self, rows: Sequence[int], element: Element, fill: Expression, name: str) -> Element:
        """Elements of lengthened rows, for several readers.

        Args:
            rows: extents of the axes before the last.
            element: of the row as it is.
            fill: the value of no weight.
            name: of the block, where rows are copied.
        """
        filled = self.filled(element, fill)
        if self.length == self._size or not self._stage.any_length:
            return filled
        copy = self._stage.compute((*rows, self.length), filled, name)
        return lambda indices: load(copy, indices)

    def filled(self, element: Element, fill: Expression) -> Element:
        """Elements of lengthened rows as a formula."""
        if self.length == self._size:
            return element
        if self._stage.any_length:
            return lambda i: tirx.if_then_else(i[-1] < self._size, element(i), fill)
        extra, last = self.length - self._size, self.length - _UNIT

        def ending(indices: Indices) -> Expression:
            *outer, position = indices
            return tirx.Select(position < last + extra, fill, element([*outer, position - extra]))

        return lambda i: tirx.if_then_else(i[-1] < last, element(i), ending(i))

    def place(self, indices: Indices) -> Indices:
        """The index of an element of the row in the lengthened row."""
        if self.length == self._size or self._stage.any_length:
            return indices
        *outer, position = indices
        extra, last = self.length - self._size, self.length - _UNIT
        return [*outer, position + tirx.if_then_else(position < last, 0, extra)]
