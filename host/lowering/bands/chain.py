"""What a chain is: functions that follow each other, each for one band of rows, and where the bands lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.tirx import max as most
from tvm.tirx import min as least

from host.lowering.graph import Shape
from host.lowering.spec import OpSpec


@dataclass(frozen=True)
class Argument:
    """An argument of the chain as one of its parts reads it.

    Attributes:
        number: of the chain's input.
        shape, dtype: of what a band reads of it.
        rows: whether it is an image, of which a band reads its rows; of a weight each reads all.
    """

    number: int
    shape: Shape
    dtype: str
    rows: bool


@dataclass(frozen=True)
class Scalar:
    """A constant of one element."""

    number: float
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Before:
    """The result of the part before."""


@dataclass(frozen=True)
class Made:
    """The result of an earlier step of the same part."""

    step: int


Read = Argument | Scalar | Before | Made


@dataclass(frozen=True)
class Step:
    """One operation of a part.

    Attributes:
        spec: what it is.
        reads: its inputs.
        attrs: its attributes, by name.
        shape, dtype: of its result for one band.
    """

    spec: OpSpec
    reads: tuple[Read, ...]
    attrs: tuple[tuple[str, Any], ...]
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Part:
    """A function of the chain for one band: an anchor and what is computed with it.

    Attributes:
        steps: in running order; the last one makes the result.
        before: shape of what it reads of the part before; () for the first.
    """

    steps: tuple[Step, ...]
    before: Shape = ()

    @property
    def shape(self) -> Shape:
        """Of its result for one band: [1, rows, width, channels]."""
        return self.steps[-1].shape


@dataclass(frozen=True)
class Zeros:
    """Rows of the buffer between the first two parts that hold zeros in one band.

    Attributes:
        name: on which side of the image they are: "before" or "behind".
        band: the only one that reads outside of the image on that side.
        first, count: of the rows of the buffer.
    """

    name: str
    band: int
    first: int
    count: int


@dataclass(frozen=True)
class Bands:
    """Where the bands of a depthwise convolution lie in its input and its output.

    A band reads `read` rows of what the first part makes, from `padding` before its own first row on. Of
    these only those in the image are computed; the others hold zeros. The last band ends with the output:
    where the rows do not divide it, some are computed twice.

    Attributes:
        height: rows of the input.
        made: rows of the output.
        rows: of the output in one band.
        kernel: rows that an element of the output reads, holes of a dilation included.
        stride: of the convolution along the rows.
        padding: rows of zeros before the first.
    """

    height: int
    made: int
    rows: int
    kernel: int
    stride: int
    padding: int

    @property
    def count(self) -> int:
        """How many bands there are."""
        return -(-self.made // self.rows)

    @property
    def read(self) -> int:
        """Rows of the input that a band reads."""
        return (self.rows - 1) * self.stride + self.kernel

    @property
    def over(self) -> int:
        """Rows that the last band reads behind the image."""
        return max(0, (self.made - self.rows) * self.stride - self.padding + self.read - self.height)

    @property
    def possible(self) -> bool:
        """Whether only the first band reads before the image, and only the last one behind it."""
        last_but_one = (self.count - 2) * self.rows * self.stride
        # The last band may move on by less than the others: it ends with the output.
        least_moved = min(self.rows, self.made - self.rows) * self.stride
        return (
            self.count > 1
            and 0 <= self.padding <= least_moved
            and last_but_one - self.padding + self.read <= self.height
            and self.read <= self.height
        )

    def first(self, band: Any) -> Any:
        """The first row of the output in a band, as an expression of the band's number."""
        return (
            band * self.rows if self.made % self.rows == 0 else least(band * self.rows, self.made - self.rows)
        )

    def start(self, band: Any) -> Any:
        """The first row of the image that a band computes in the first part, likewise."""
        wanted = self.first(band) * self.stride - self.padding
        return most(0, least(wanted, self.height - self.read))

    def place(self, band: Any) -> Any:
        """Where the row `start` lies in the buffer, likewise; a band reads the buffer from `over` on."""
        return self.start(band) - self.first(band) * self.stride + (self.padding + self.over)

    @property
    def zeros(self) -> tuple[Zeros, ...]:
        """Rows of the buffer that stand for those outside of the image."""
        before = Zeros("before", 0, self.over, self.padding)
        behind = Zeros("behind", self.count - 1, self.read, self.over)
        return tuple(one for one in (before, behind) if one.count)

    @property
    def stored(self) -> int:
        """Rows of the buffer between the first two parts; where the image ends, only some are computed."""
        return self.over + self.read + self.padding


@dataclass(frozen=True)
class Chain:
    """A chain in bands: a product of each pixel, a depthwise convolution, and perhaps another product.

    Attributes:
        parts: two or three.
        bands: of the second part.
        result: shape of the chain's result, [1, rows, width, channels].
    """

    parts: tuple[Part, ...]
    bands: Bands
    result: Shape
