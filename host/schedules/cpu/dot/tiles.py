"""Products of bytes and of bfloat16 numbers in registers of matrices: which programs fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from host.schedules.api import Decisions
from host.schedules.cpu.tiled.roles import Roles, blocks_divide, counts_of, roles_of
from host.schedules.workload import Stage, Workload
from host.tensor_ir.tiles.registers import ROW_BYTES, ROWS, Loop, TileProduct, split_rows
from targets import HardwareModel

# Sums of a tile: registers that leave some for both operands, and what the stack takes of them. Six for one
# panel were slower for 7 x 7 rows that are 2 KB apart: more of them than the ways of the first level.
_MOST_SUMS = 4
_LANES = 16


def has_tiles(kind: str, anchor: Stage, roles: Roles, hardware: HardwareModel) -> bool:
    """Whether the processor multiplies in tiles what a stage is a sum of.

    Not one row: a register of weights would be loaded for it alone, which vectors do as fast.

    Args:
        kind: of the dot product.
        anchor: the stage with groups as elements.
        roles: of its axes.
        hardware: the processor.
    """
    activations, weights = anchor.reads
    rows = (*roles.rows, *(() if roles.second is None else (roles.second,)))
    # Rows share all weights, and panels all rows; what a register loads lies at equal distances.
    if activations.uses(roles.vector) or any(weights.uses(axis) for axis in rows):
        return False
    if any(activations.groups[axis][0] for axis in (*rows, *roles.reduction)):
        return False
    tiles = hardware.matrix_tiles
    whole = roles.lanes == _LANES and not roles.ragged_vectors
    several = roles.row_total * roles.second_total > 1
    return tiles is not None and kind in tiles.kinds and whole and several


def row_choices(roles: Roles, choices: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Rows of a tile beside those of vectors, and the blocks that they leave: several registers high."""
    total = roles.row_total
    most = ROWS * _MOST_SUMS
    rows = {n for n in range(1, min(total, most) + 1) if total % n == 0}
    # Where nothing divides, whole registers with a remainder at the end.
    if not any(n > ROWS // 2 for n in rows):
        rows |= {n for n in range(ROWS, most + 1, ROWS) if n < total}
    found = sorted({*choices["rows"], *rows})
    blocks = set(choices["block"])
    for one in rows:
        count = -(-total // one)
        blocks |= {size for size in range(1, min(count, 64) + 1) if count % size == 0} | {count}
    seconds = choices["rows2"]
    if roles.second_total <= ROWS // 2:
        seconds = sorted({*seconds, roles.second_total})
    return {"rows": tuple(found), "rows2": tuple(seconds), "block": tuple(sorted(blocks))}


def fit_registers(lanes: Workload, hardware: HardwareModel, values: Decisions) -> bool:
    """Whether a tile fits the registers of matrices, that at the end of its rows too.

    Args:
        lanes: the workload with groups as elements.
        hardware: the processor.
        values: of the decisions.
    """
    anchor = lanes.anchor_stage
    roles = roles_of(anchor, hardware)
    assert roles is not None
    if roles.groups % values["vectors"] or not blocks_divide(roles, values):
        return False
    if values.get("fetch") and counts_of(roles, values).panel_blocks == 1:
        return False
    if values["window"] or values["unroll"] > 1:
        return False
    rest = roles.row_total % values["rows"]
    return all(
        product_of(anchor, roles, rows, values["rows2"], values["vectors"]) is not None
        for rows in filter(None, (values["rows"], rest))
    )


def bytes_ahead(roles: Roles, values: Decisions) -> int:
    """Bytes from the weights that a tile loads to those of the next block of panels, which it fetches."""
    each = ROW_BYTES * roles.depth * values["vectors"] * values["panel"]
    return each if values.get("fetch") else 0


def product_of(anchor: Stage, roles: Roles, rows: int, seconds: int, panels: int) -> TileProduct | None:
    """The products of a tile, with offsets of no meaning; None where its sums do not fit the registers.

    Args:
        anchor: the stage with groups as elements.
        roles: of its axes.
        rows: of a tile along the axis of rows.
        seconds: the same along the second axis.
        panels: of a tile.
    """
    across = distance(anchor, roles, rows, seconds)
    heights = split_rows((seconds - 1) * across + rows) if across else split_rows(rows) * seconds
    if len(heights) * panels > _MOST_SUMS:
        return None
    loops, groups = _sum_of(anchor, roles)
    kind = "u8s8"
    made = TileProduct(
        kind, tuple((0, 0, height) for _, height in heights), ((0, 0),) * panels, (0, 0), loops, groups
    )
    return made if made.registers() is not None else None


def distance(anchor: Stage, roles: Roles, rows: int, seconds: int) -> int:
    """Rows from one line of an image to the next where registers go on from line to line; 0 where none does.

    The sums between two lines are of what lies there in memory, such as borders, and nothing reads them. It
    is worth it where lines are short: 7 x 7 rows of an image with borders take four registers in place of
    seven.
    """
    if roles.second is None or seconds == 1 or rows != roles.row_total:
        return 0
    row = next((axis for axis in roles.rows if anchor.axes[axis].extent > 1), None)
    if row is None:
        return 0
    activations = anchor.reads[0]
    across, beyond = divmod(activations.strides[roles.second], activations.strides[row] or 1)
    if beyond or across < rows:
        return 0
    fewer = len(split_rows((seconds - 1) * across + rows)) < len(split_rows(rows)) * seconds
    return across if fewer else 0


def _sum_of(anchor: Stage, roles: Roles) -> tuple[tuple[Loop, ...], int]:
    """The loops of a sum around the groups that lie side by side in both operands, and how many those are."""
    activations, weights = anchor.reads
    groups = 1
    loops: list[Loop] = []
    for axis in reversed(roles.reduction):
        extent = anchor.axes[axis].extent
        beside = activations.strides[axis] == groups and weights.strides[axis] == groups * roles.lanes
        if extent > 1 and beside and not loops:
            groups *= extent
        elif extent > 1:
            loops.insert(0, Loop(extent, 0, 0))
    return tuple(loops), groups
