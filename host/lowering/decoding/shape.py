"""The extents of attention over a cache, which its function and the programs of its rules are written for."""

from __future__ import annotations

import json
from dataclasses import dataclass

import tvm

from host.lowering.decoding.lines import POSITIONS
from targets import HardwareModel

# The function's one block, and its annotation with `CacheShape.options`.
BLOCK = "cached_attention"
OPTIONS = "edgetlm.cached_attention"
# Rows of a tile at most, and vectors of sums that its values may take.
_MOST_ROWS, _MOST_SUMS = 8, 16
# Sums of products that a row is divided into, as each addition waits for the one before it; vectors of all of
# them at most.
_PARTS, _MOST_PART_VECTORS = (1, 2, 4), 8


@dataclass(frozen=True)
class CacheShape:
    """The extents of a function.

    Attributes:
        rows: new tokens, T.
        heads: of queries, H.
        key_heads: Hk, a divisor of H.
        size: elements of a head, D.
        capacity: positions of the cache, C, a multiple of 16.
        window: positions that a token reads at most, itself included; 0 for all.
        scale: of the scores.
        cap: scaled scores become cap * tanh(score / cap); 0 for none.
        lanes: fp32 elements of the target's vector.
        kept: type of the elements of the caches.
        on_gpu: whether a GPU computes it, whose rule writes a program of its own in place of the function's.
        rounded: whether queries, keys, powers and values are rounded to bfloat16.
        in_tiles: whether these are multiplied in registers of matrices.
    """

    rows: int
    heads: int
    key_heads: int
    size: int
    capacity: int
    window: int
    scale: float
    lanes: int
    kept: str = "float32"
    cap: float = 0.0
    on_gpu: bool = False
    rounded: bool = False
    in_tiles: bool = False

    @property
    def scaled(self) -> bool:
        """Whether the caches have scales."""
        return self.kept == "int8"

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the caches."""
        return int(tvm.DataType(self.kept).itemsize)

    @property
    def parts(self) -> int:
        """Sums that the products of a query and a key are added up in, side by side or one after the other.

        A row is added up in the order in which a call of one token does it, however many rows there are: so
        each row of a call that verifies drafted tokens has the bits of a step.
        """
        return 1 if self.on_gpu else self._sums_of(self._tile_of(self.group))

    @property
    def parts_at_once(self) -> int:
        """As many of these sums as registers hold for all rows of a tile."""
        return 1 if self.on_gpu else min(self.parts, self._sums_of(self.tile))

    def _sums_of(self, tile: int) -> int:
        vectors = tile * -(-POSITIONS // self.lanes)
        fitting = [n for n in _PARTS if n * vectors <= _MOST_PART_VECTORS and self.size % n == 0]
        return max(fitting, default=1)

    @property
    def group(self) -> int:
        """Heads of queries that share a head of keys."""
        return self.heads // self.key_heads

    @property
    def tile(self) -> int:
        """Rows that are computed together: each key and value is loaded once for them."""
        return self._tile_of(self.rows * self.group)

    def _tile_of(self, rows: int) -> int:
        vectors = -(-self.size // self.lanes)
        fitting = max(1, _MOST_SUMS // vectors)
        return max(n for n in range(1, min(_MOST_ROWS, fitting, rows) + 1) if rows % n == 0)

    @property
    def vectors(self) -> list[tuple[int, int]]:
        """The first element and the lanes of each vector of a head."""
        return [(at, min(self.lanes, self.size - at)) for at in range(0, self.size, self.lanes)]

    @property
    def start(self) -> str:
        """Text of the position of the first row, bounded so that all rows fit, whatever the caller gives."""
        return f"T.max(T.min(position[0], {self.capacity - self.rows}), 0)"

    @property
    def options(self) -> str:
        """What a rule does not find in the extents of the function, as its block states it."""
        products = {name: True for name in ("rounded", "in_tiles") if getattr(self, name)}
        return json.dumps({"scale": self.scale, "window": self.window, "cap": self.cap, **products})


def fp32_lanes(hardware: HardwareModel) -> int:
    """Elements of the vectors that the function is written for."""
    return max(4, hardware.lanes)
