"""What one thread of a program computes, and which registers it takes."""

from __future__ import annotations

from dataclasses import dataclass

from host.schedules.api import Decisions
from host.schedules.cuda.windows.pool import Pool

# Bytes of a register.
_WORD = 4
# Registers of a thread beside its results and the image: addresses, conditions.
_OTHER_REGISTERS = 40
# Rows of a window up to which they are written out one after the other.
_WRITTEN_OUT = 5


@dataclass(frozen=True)
class Tiling:
    """The tile of a thread.

    Attributes:
        pool: what is computed.
        width: neighbouring channels.
        rows, columns: results along both directions of the image.
        threads: of a block.
    """

    pool: Pool
    width: int
    rows: int
    columns: int
    threads: int

    @property
    def results(self) -> int:
        """Results of a thread for one channel."""
        return self.rows * self.columns

    @property
    def loops(self) -> bool:
        """Whether rows of the window are a loop: of a large one, where results share none."""
        return self.rows == 1 and self.pool.rows.taps > _WRITTEN_OUT

    @property
    def row_places(self) -> int:
        """Rows of the image that a thread reads."""
        return len(self.pool.rows.places(self.rows))

    @property
    def column_places(self) -> int:
        """Places of each of these rows that it reads."""
        return len(self.pool.columns.places(self.columns))

    @property
    def places(self) -> int:
        """Vectors that a thread loads."""
        return self.row_places * self.column_places

    @property
    def written_places(self) -> int:
        """Of these, those that the code has one after the other."""
        return self.column_places if self.loops else self.places

    @property
    def registers(self) -> int:
        """Registers that a thread needs: results, the maxima or sums of a row, and a row of the image."""
        words = -(-self.width * self.pool.image.element_bytes // _WORD)
        along = self.columns * self.width
        return self.results * self.width + along + self.column_places * words + _OTHER_REGISTERS

    @property
    def total(self) -> int:
        """Threads of the whole program."""
        pool = self.pool
        rows, columns = -(-pool.rows.extent // self.rows), -(-pool.columns.extent // self.columns)
        return pool.images * rows * columns * (pool.channels // self.width)

    @property
    def grid(self) -> int:
        """Blocks of the whole program."""
        return -(-self.total // self.threads)


def tiling_of(pool: Pool, values: Decisions) -> Tiling:
    """The tile that decisions describe."""
    return Tiling(pool, values["width"], values["rows"], values["cols"], values["threads"])
