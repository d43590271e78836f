"""What one thread of a program computes, and which registers it takes."""

from __future__ import annotations

from dataclasses import dataclass

from host.schedules.api import Decisions
from host.schedules.cuda.depthwise.window import DOT, Window
from host.schedules.cuda.image_windows import ThreadTile

# Bytes of a register.
WORD = 4
# Taps that are added up in halves before their sum goes to one in single precision: of a window of more, one
# row after the other is.
MOST_HALF_TAPS = 9
# Registers of a thread beside its sums, weights and image: addresses, conditions, results on their way.
_OTHER_REGISTERS = 40


@dataclass(frozen=True)
class Tiling(ThreadTile):
    """The tile of a thread.

    Attributes:
        window: of the convolution.
        single: whether every product is added up in single precision.
    """

    window: Window
    single: bool

    @property
    def words(self) -> int:
        """Registers of neighbouring channels of the image or of the weights."""
        return self.width * self.window.weights.element_bytes // WORD

    @property
    def groups(self) -> int:
        """Dot products along the rows of the window."""
        return -(-self.window.rows.taps // DOT)

    @property
    def whole(self) -> bool:
        """Whether a thread keeps all weights in registers; else those of one row of the window."""
        return self.window.bytes or self.window.taps <= MOST_HALF_TAPS

    @property
    def weight_words(self) -> int:
        """Registers of the weights."""
        window = self.window
        if window.bytes:
            return self.groups * DOT * window.columns.taps * self.words
        return (window.taps if self.whole else window.columns.taps) * self.words

    @property
    def image_words(self) -> int:
        """Registers of the part of the image that is multiplied at a time."""
        if self.window.bytes:
            return DOT * self.words
        return self.column_places * self.words

    @property
    def registers(self) -> int:
        """Registers that a thread needs."""
        sums = self.results * self.width
        if not self.window.bytes and not self.single:
            sums = self.results * self.words * (1 if self.whole else 3) + (self.width if self.whole else 0)
        return sums + self.weight_words + self.image_words + _OTHER_REGISTERS


def tiling_of(window: Window, values: Decisions) -> Tiling:
    """The tile that decisions describe."""
    return Tiling(
        window,
        values["width"],
        values["rows"],
        values["cols"],
        values["threads"],
        bool(values.get("single", 0)),
    )
