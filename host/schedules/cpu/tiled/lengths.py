"""Register-blocked programs over a range of lengths: tiles of rows or of vectors along the length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import lcm
from typing import Self

from host.errors import ScheduleError
from host.schedules.cpu.tiled.roles import FETCHING_ROWS, PAD_COPY, roles_of
from host.schedules.length_tiling import LengthTile, LengthTiling, TileDesign
from host.schedules.workload import Workload
from targets import HardwareModel

# Rows of a register tile that are tried, and vectors where these run along the length.
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_VECTORS = (1, 2, 3, 4)
# Rows that are tried with vectors shorter than the processor's.
_ROWS_OF_SHORT_VECTORS = (1, 4, 8)
# Programs of so few rows serve inputs of hardly more, and are made for them.
_FEW_ROWS = 8
# About the length that programs are constructed for.
_USUAL_LENGTH = 192


@dataclass(frozen=True)
class TiledLengths(LengthTiling):
    """Which axes of a register-blocked program grow with the length.

    Attributes:
        rows, vector, outer, reduction: whether axes of that role do.
        padded: whether it reads a padded input: a copy, since borders that are peeled off are not tiles.
    """

    rows: bool
    vector: bool
    outer: bool
    reduction: bool
    padded: bool

    @classmethod
    def between(cls, shorter: Workload, longer: Workload, hardware: HardwareModel) -> Self:
        """Reads the growing axes off the anchor.

        Raises:
            ScheduleError: the axes change with the length.
        """
        a, b = shorter.anchor_stage, longer.anchor_stage
        roles = roles_of(a, hardware)
        if roles is None or len(a.axes) != len(b.axes):
            raise ScheduleError("its axes change with the length")
        grown = {i for i, (x, y) in enumerate(zip(a.axes, b.axes, strict=True)) if x.extent != y.extent}
        return cls(
            rows=bool(grown & {*roles.rows}),
            vector=roles.vector in grown,
            outer=roles.second is not None and bool(grown & {*roles.outer}),
            reduction=bool(grown & {*roles.reduction}),
            padded=any(stage.kind == "padding" for stage in shorter.stages),
        )

    def designs(self, hardware: HardwareModel) -> Iterator[TileDesign]:
        """Register tiles of some rows and vectors, and of few with shorter vectors."""
        lanes = hardware.lanes
        for width in _widths(lanes) if self.vector else [lanes]:
            narrow = replace(hardware, vector_bits=hardware.vector_bits * width // lanes)
            for vectors in _VECTORS if self.vector else (0,):
                for rows in _ROWS if self.rows else (0,):
                    few = vectors == 1 and rows in (0, *_ROWS_OF_SHORT_VECTORS)
                    if width == lanes or few:
                        length = self._construction_length(rows, vectors * narrow.lanes)
                        yield TileDesign(narrow, self._fixed(rows, vectors), length)

    def untiled(self) -> Mapping[str, int]:
        """One row, or one vector of which the last is not full."""
        return {**self._fixed(1, 1), **({"block": 1} if self.rows else {})}

    def _fixed(self, rows: int, vectors: int) -> dict[str, int]:
        """The register tile, and what overlapping tiles cannot leave open."""
        fixed: dict[str, int] = {}
        if self.rows:
            fixed["rows"] = rows
        if self.vector:
            fixed |= {"vectors": vectors, "panel": 1}
        if self.outer:
            fixed |= {"rows2": 1, "block2": 1}
        if self.reduction:
            fixed |= {"unroll": 1, "window": 0}
        if self.padded:
            fixed["pad"] = PAD_COPY
        return fixed

    def _construction_length(self, rows: int, elements: int) -> int:
        step = lcm(max(1, rows), max(1, elements))
        length = step * max(1, round(_USUAL_LENGTH / step))
        if not self.rows:
            return length
        if not (self.vector or self.outer or self.reduction) and rows <= _FEW_ROWS:
            # At twice its rows a program that serves no fewer fetches its weights ahead.
            return rows if 2 * rows < FETCHING_ROWS or rows == _FEW_ROWS else 2 * rows
        return lcm(length, rows * 8) if rows * 8 <= 256 else length

    def tile(self, values: Mapping[str, int], hardware: HardwareModel) -> LengthTile:
        """Rows and vectors of the register tile; along other axes every iteration is a tile."""
        extents = [1] * (self.outer + self.reduction)
        period = 1
        if self.rows:
            extents.append(values["rows"])
            period = values["rows"] * values["block"]
        if self.vector:
            extents.append(values["vectors"] * hardware.lanes)
        return LengthTile(tuple(extents), lcm(period, *extents))

    def decisions_at(self, values: Mapping[str, int], length: int) -> Mapping[str, int]:
        """No more tiles of rows in a block than there are, in blocks of the same number."""
        if not self.rows:
            return values
        tiles = length // values["rows"]
        block = max(size for size in range(1, min(values["block"], tiles) + 1) if tiles % size == 0)
        return {**values, "block": block}


def _widths(lanes: int) -> list[int]:
    """The processor's vector and shorter ones of at least four elements."""
    widths = []
    while lanes >= 4:
        widths.append(lanes)
        lanes //= 2
    return widths
