"""Products of bytes in int32, and of bfloat16 in single precision: `tiled` around a dot product.

The innermost tile is one vector of `L` sums that takes `G` products each, `C[L] += A[G] . B[L, G]`, A the
same for all lanes, B packed. `intrinsic` says whether it is the processor's instruction for that or plain
code, which is never faster for bfloat16: its elements would be widened one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from host.lowering.types import BFLOAT16
from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import epilogue_names, inline_chain, prologue_names, schedule_copy
from host.schedules.cpu.dot.cost import CONSTANTS, dot_seconds
from host.schedules.cpu.dot.intrinsics import (
    INSTRUCTION,
    PLAIN,
    TILES,
    has_intrinsic,
    intrinsic,
    steps_together,
)
from host.schedules.cpu.dot.stage import dot_kind, in_lanes
from host.schedules.cpu.dot.tiles import bytes_ahead, distance, fit_registers, has_tiles, row_choices
from host.schedules.cpu.tiled.nest import Nest
from host.schedules.cpu.tiled.roles import PAD_COPY, Roles, cold_weights, roles_of
from host.schedules.cpu.tiled.rule import Tiled, vectorise_tail
from host.schedules.workload import Stage, Workload
from host.tensor_ir.tiles.products import PRODUCT, START
from targets import HardwareModel

# Of the shortest vectors.
_REGISTER_BYTES = 16
# Of bfloat16, and of bytes in registers of matrices: vectors of weights of bytes are half of those again.
[_FETCH] = (kind for kind in Tiled.decisions if kind.name == "fetch")


class Dot(Rule):
    """The nest of `tiled` with dot products of four bytes or two numbers of 16 bits inside."""

    name = "dot"
    processor = CPU
    # 6: products in registers of matrices.
    version = 6
    priority = 20
    constants = CONSTANTS
    decisions = (
        *(kind for kind in Tiled.decisions if kind.name != _FETCH.name),
        DecisionKind("intrinsic", Level.REGISTER, WordClass.SWITCH),
        _FETCH,
    )

    def __init__(self) -> None:
        self._tiled = Tiled()

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Groups that the processor multiplies in one instruction, and a nest that `tiled` can make."""
        kind = dot_kind(workload.anchor_stage, hardware)
        if not kind:
            return False
        lanes = in_lanes(workload)
        if not self._tiled.matches(lanes, hardware):
            return False
        return has_intrinsic(kind, _roles(lanes, hardware).lanes)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Those of `tiled`, padded inputs always copied, and the instruction."""
        lanes, kind = in_lanes(workload), dot_kind(workload.anchor_stage, hardware)
        found = {**self._tiled.choices(lanes, hardware), "pad": (PAD_COPY,)}
        kinds = (INSTRUCTION,) if kind == BFLOAT16 else (PLAIN, INSTRUCTION)
        if has_tiles(kind, lanes.anchor_stage, _roles(lanes, hardware), hardware):
            kinds = (*kinds, TILES)
            found.update(row_choices(_roles(lanes, hardware), found))
        elif kind != BFLOAT16:
            del found[_FETCH.name]
        return {**found, "intrinsic": kinds}

    def starts(self, workload: Workload, hardware: HardwareModel) -> Iterable[Decisions]:
        """For each number of panels, the tiles of most rows: both share the few registers of matrices."""
        choices = self.choices(workload, hardware)
        if TILES not in choices["intrinsic"]:
            return
        least = {name: values[0] for name, values in choices.items()}
        for vectors, rows2 in itertools.product(choices["vectors"], choices["rows2"]):
            for rows in reversed(choices["rows"]):
                tile = {"vectors": vectors, "rows": rows, "rows2": rows2, "intrinsic": TILES}
                if self.legal(workload, hardware, {**least, **tile}):
                    yield {**least, **tile}
                    break

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """The conditions of the rule `tiled`, for the stage with its reduction split into dot products.

        Tiles have no code that is written out, and registers of their own.
        """
        if values["intrinsic"] == TILES:
            return fit_registers(in_lanes(workload), hardware, values)
        if values.get(_FETCH.name) and workload.anchor_stage.reads[1].element_bytes == 1:
            return False
        return self._tiled.legal(in_lanes(workload), hardware, {"fetch": 0, **values})

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles the anchor, moves the stages after it into the tile and puts the instruction inside."""
        schedule = sampler.schedule
        lanes = in_lanes(workload)
        roles = _roles(lanes, hardware)
        block = schedule.get_sblock(workload.anchor_stage.name)
        tails = inline_chain(schedule, epilogue_names(workload))
        if tails:
            schedule.set_scope(block, 0, "local")
        else:
            tails = [schedule.get(schedule.cache_write(block, 0, "local")).name_hint]
        tiles = sampler.value("intrinsic") == TILES
        plain, kind = sampler.value("intrinsic") == PLAIN, dot_kind(workload.anchor_stage, hardware)
        steps = 1 if plain else steps_together(kind, sampler.value("unroll"))
        nest = Nest(sampler, lanes.anchor_stage, roles, block, threads, vectorised=plain, together=steps > 1)
        wide = _tail_lanes(workload, roles, hardware, sampler.value("vectors"))
        for name in tails:
            tail = schedule.get_sblock(name)
            schedule.reverse_compute_at(tail, nest.attach)
            vectorise_tail(schedule, tail, nest.attach, len(roles.rows) + 2, wide)
        for name in prologue_names(workload):
            # The instruction loads from memory: what it reads is made in advance.
            schedule_copy(schedule, name, 4 * hardware.lanes, threads)
        nest.parallelise(threads)
        first = nest.finish()
        if tiles:
            rest = roles.row_total % sampler.value("rows")
            ahead = bytes_ahead(roles, sampler.values)
            schedule.annotate(nest.loop_inside(block), PRODUCT, f"{kind} {rest} {ahead}")
            schedule.annotate(nest.loop_inside(first), START, kind)
            _keep_distance(sampler, lanes.anchor_stage, roles, block)
            return
        weights = cold_weights(lanes.anchor_stage, roles, hardware)
        if weights is not None and sampler.values.get(_FETCH.name):
            nest.prefetch(weights, workload.anchor_stage.axes[-1].extent)
        if plain:
            schedule.unroll(schedule.get_loops(block)[-1])
            return
        schedule.vectorize(schedule.get_loops(first)[-1])
        # A tile that is not full has a condition, which a block around keeps out of the instruction's.
        outer = schedule.blockize(nest.steps if steps > 1 else nest.lane)
        [inner] = schedule.get_child_blocks(outer)
        schedule.tensorize(schedule.get_loops(inner)[0], intrinsic(kind, roles.lanes, steps))

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return dot_seconds(workload, hardware, threads, values)


def _roles(lanes: Workload, hardware: HardwareModel) -> Roles:
    roles = roles_of(lanes.anchor_stage, hardware)
    assert roles is not None, "the rule matched before"
    return roles


def _keep_distance(sampler: Sampler, anchor: Stage, roles: Roles, block: Any) -> None:
    """Sums of lines lie as far apart as the lines where registers go on from one to the next."""
    across = distance(anchor, roles, sampler.value("rows"), sampler.value("rows2"))
    if across:
        place = anchor.spatial.index(roles.second)
        size = across * sampler.value("vectors") * roles.lanes
        sampler.schedule.storage_align(block, 0, place, size, 0)


def _tail_lanes(workload: Workload, roles: Roles, hardware: HardwareModel, vectors: int) -> int:
    """Elements of a vector of what follows the sums.

    On processors with vectors of 128 bits, those of several vectors of sums that become one of bytes.
    """
    whole = not roles.ragged_vectors and roles.groups % vectors == 0
    if hardware.vector_bits > 8 * _REGISTER_BYTES or not whole:
        return roles.lanes
    size = roles.lanes * workload.stages[-1].write.element_bytes
    return roles.lanes * next((n for n in (4, 2) if vectors % n == 0 and n * size <= _REGISTER_BYTES), 1)


RULE = Dot()
