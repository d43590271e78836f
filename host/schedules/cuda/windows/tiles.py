"""What one thread of a program computes, and which registers it takes."""

from __future__ import annotations

from dataclasses import dataclass

from host.schedules.api import Decisions
from host.schedules.cuda.image_windows import ImageWindows, ThreadTile

# Bytes of a register.
_WORD = 4
# Registers of a thread beside its results and the image: addresses, conditions.
_OTHER_REGISTERS = 40
# Rows of a window up to which they are written out one after the other.
_WRITTEN_OUT = 5


@dataclass(frozen=True)
class Tiling(ThreadTile):
    """The tile of a thread of pooling."""

    @property
    def loops(self) -> bool:
        """Whether rows of the window are a loop: of a large one, where results share none."""
        return self.rows == 1 and self.window.rows.taps > _WRITTEN_OUT

    @property
    def written_places(self) -> int:
        """Of the places, those that the code has one after the other."""
        return self.column_places if self.loops else self.places

    @property
    def registers(self) -> int:
        """Registers that a thread needs: results, the maxima or sums of a row, and a row of the image."""
        words = -(-self.width * self.window.image.element_bytes // _WORD)
        along = self.columns * self.width
        return self.results * self.width + along + self.column_places * words + _OTHER_REGISTERS


def tiling_of(pool: ImageWindows, values: Decisions) -> Tiling:
    """The tile that decisions describe."""
    return Tiling(pool, values["width"], values["rows"], values["cols"], values["threads"])
