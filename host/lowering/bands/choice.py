"""In how many rows a band a chain is computed, by an estimate of what stays in cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from host.lowering.bands.chain import Bands
from targets import HardwareModel, MemoryLevel

# The kind of the decision; its values are rows of the result in a band, 0 for functions of their own.
ROWS_KIND = "bands"
# Of the cache, what the buffers of a band may take: weights, input and result pass through it too.
_SHARE = 0.5
# So many sizes of bands are offered, the largest that fit: the larger, the fewer rows are computed twice.
_OFFERED = 3
# Of what a band saves by the bandwidths alone, what is counted on: transfers overlap with arithmetic.
_COUNTED = 0.5
# Seconds of one part of a band beside its arithmetic: the start and the ragged end of its loops.
_START_S = 5e-7
# Of the peak, what small products reach.
_REACHED = 0.5
_BYTES = 4


@dataclass(frozen=True)
class Sizes:
    """Numbers of elements of a chain.

    Attributes:
        row: of one row of what the first function makes.
        after: of one row of what the second makes for a third; 0 without one.
        depth: products of each element of the first.
    """

    row: int
    after: int
    depth: int


def options_of(bands: Callable[[int], Bands], sizes: Sizes, hardware: HardwareModel) -> tuple[int, ...]:
    """The numbers of rows that can be taken, the largest bands that fit the cache of a core.

    Args:
        bands: of a number of rows.
        sizes: of the chain.
        hardware: the processor.
    """
    near = _near(hardware)
    if near is None:
        return ()
    made = bands(1).made
    # As even as they can be: so many rows that no smaller bands would do with their number.
    even = sorted({-(-made // count) for count in range(2, made + 1)}, reverse=True)
    # Threads share bands out, two or more of them: an odd number would leave one of them idle in the end.
    fitting = [
        rows
        for rows in even
        if bands(rows).possible
        and bands(rows).count % 2 == 0
        and _band_bytes(bands(rows), sizes) <= _SHARE * near.size_bytes
    ]
    return tuple(sorted(fitting[:_OFFERED]))


def own_rows(options: Sequence[Bands], sizes: Sizes, hardware: HardwareModel) -> int:
    """The rows of the bands that are estimated to be the fastest; 0 where functions of their own are.

    What lies between the functions of a whole image comes from the level of memory that holds all of it; of a
    band it stays in the cache of the core. Rows that two bands read are computed twice. The estimate is for
    one thread: lowering does not know how many there are, and does not count those that have no band.

    Args:
        options: bands of each number of rows.
        sizes: of the chain.
        hardware: the processor.
    """
    near = _near(hardware)
    if near is None:
        return 0
    best, best_s = 0, 0.0
    for bands in options:
        between = _BYTES * (bands.height * sizes.row + bands.made * sizes.after)
        level = hardware.level_of(between)
        if level.size_bytes and level.size_bytes <= near.size_bytes:
            continue
        moved = 2 * between
        saved_s = moved / level.bandwidth_bytes_per_s - moved / near.bandwidth_bytes_per_s
        twice = bands.count * bands.read - bands.height
        operations = 2.0 * twice * sizes.row * sizes.depth
        lost_s = operations / (_REACHED * hardware.peak_flops) + 3 * bands.count * _START_S
        gained_s = _COUNTED * saved_s - lost_s
        if gained_s > best_s:
            best, best_s = bands.rows, gained_s
    return best


def _band_bytes(bands: Bands, sizes: Sizes) -> int:
    return _BYTES * (bands.stored * sizes.row + bands.rows * sizes.after)


def _near(hardware: HardwareModel) -> MemoryLevel | None:
    """The second level of cache; None where there is none before memory."""
    return hardware.levels[1] if len(hardware.levels) > 2 else None
