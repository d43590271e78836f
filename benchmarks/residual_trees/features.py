"""What follows from the task, the board and the decisions of a tiled program, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from host.schedules.api import Decisions
from host.schedules.cpu.tiled.roles import Counts, Roles, counts_of, registers, roles_of, unrolled_window
from host.schedules.cpu.traffic import footprint_bytes
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

_LINE_BYTES = 64


def program_features(workload: Workload, hardware: HardwareModel, values: Decisions) -> dict[str, float]:
    """Features of a program of the `tiled` rule by name; sizes in logarithms to base 2."""
    anchor = workload.anchor_stage
    roles = roles_of(anchor, hardware)
    assert roles is not None
    counts = counts_of(roles, values)
    return {
        **_of_task(workload, anchor, roles),
        **_of_registers(anchor, roles, hardware, values),
        **_of_rests(roles, counts, values),
        **_of_caches(anchor, roles, hardware, values),
    }


def _log(value: float) -> float:
    return math.log2(max(value, 1e-9))


def _depth(anchor: Stage, roles: Roles) -> int:
    return math.prod(anchor.axes[axis].extent for axis in roles.reduction)


def _of_task(workload: Workload, anchor: Stage, roles: Roles) -> dict[str, float]:
    along = sum(access.uses(roles.vector) for access in anchor.reads)
    return {
        "contracts": float(anchor.kind == "contraction"),
        "vectors_read": float(along),
        "depth": _log(_depth(anchor, roles)),
        "groups": _log(roles.groups),
        "row_total": _log(roles.row_total),
        "stages_before": float(workload.anchor),
        "stages_after": float(len(workload.stages) - workload.anchor - 1),
        "reduction_stride": _log(abs(anchor.reads[0].strides[roles.reduction[-1]]) + 1),
    }


def _of_registers(
    anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions
) -> dict[str, float]:
    """Registers, chains of additions, length of the code, and loads for one multiply-add."""
    tile = values["vectors"] * values["rows"] * values["rows2"]
    window = unrolled_window(anchor, roles) if values["window"] else 1
    depth = _depth(anchor, roles)
    loads = broadcasts = 0.0
    for access in anchor.reads:
        rows = values["rows"] if roles.rows and access.strides[roles.rows[0]] else 1
        second = values["rows2"] if roles.second is not None and access.strides[roles.second] else 1
        if access.uses(roles.vector):
            loads += rows * second * values["vectors"]
        else:
            broadcasts += rows * second
    return {
        "accumulators": _log(tile / hardware.vector_registers),
        "registers": _log(registers(anchor, roles, hardware, values) / hardware.vector_registers),
        "chains": _log(tile / (hardware.fma_latency_cycles * hardware.fma_per_cycle)),
        "code": _log(tile * values["unroll"] * window),
        "steps": _log(max(1.0, depth / (values["unroll"] * window))),
        "tile_work": _log(tile * depth),
        "loads": _log((loads + 0.01) / tile),
        "broadcasts": _log((broadcasts + 0.01) / tile),
    }


def _of_rests(roles: Roles, counts: Counts, values: Decisions) -> dict[str, float]:
    """What is left over where tiles and blocks do not divide, and how many blocks there are."""
    full = roles.row_total // values["rows"] * values["rows"]
    full_vectors = roles.groups // values["vectors"] * values["vectors"]
    return {
        "rows_left": 1.0 - full / roles.row_total,
        "vectors_left": 1.0 - full_vectors / roles.groups,
        "ragged_lanes": float(roles.ragged_vectors),
        "tiles_left": _log(counts.tile_blocks * values["block"] / counts.tiles),
        "panels_left": _log(counts.panel_blocks * values["panel"] / counts.panels),
        "seconds_left": _log(counts.second_blocks * values["block2"] / counts.seconds),
        "panel_blocks": _log(counts.panel_blocks),
        "tile_blocks": _log(counts.tile_blocks),
        "second_blocks": _log(counts.second_blocks),
        "peeled": float(counts.peeled),
    }


def _of_caches(anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions) -> dict[str, float]:
    """What a tile, a panel and a block touch, beside the size of the first cache."""
    first = hardware.levels[0].size_bytes
    whole = {axis: anchor.axes[axis].extent for axis in roles.reduction}
    width, height = values["vectors"] * roles.lanes, values["rows"]
    spans = {
        "tile": (width, height, values["rows2"]),
        "panel": (width * values["panel"], height, values["rows2"]),
        "block": (width * values["panel"], height * values["block"], values["rows2"] * values["block2"]),
    }
    found = {}
    for name, (columns, rows, second) in spans.items():
        touched = {**whole, roles.vector: min(columns, anchor.axes[roles.vector].extent)}
        if roles.rows:
            touched[roles.rows[0]] = min(rows, anchor.axes[roles.rows[0]].extent)
        if roles.second is not None:
            touched[roles.second] = min(second, roles.second_total)
        found[f"{name}_bytes"] = _log(_touched_bytes(anchor, touched) / first)
    return found


def _touched_bytes(anchor: Stage, touched: Mapping[int, int]) -> float:
    accesses = (*anchor.reads, anchor.write)
    return sum(footprint_bytes(access, dict(touched), _LINE_BYTES) for access in accesses)
