"""The loop nest of a register-blocked program."""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir

from host.schedules.api import Sampler
from host.schedules.cpu.common import PEEL, fuse_parallel
from host.schedules.cpu.prefetch import LINE_ELEMENTS, linear, prefetch_in
from host.schedules.cpu.tiled.roles import Roles, bands, counts_of, outer_order, peeled_loops, row_bands
from host.schedules.workload import Access, Stage

# Cache lines that are fetched one after the other: fewer than a core waits for at once.
_BURST = 16


class Nest:
    """Splits and orders the loops of the anchor; the steps are called in the order of the methods.

    Attributes:
        attach: the loop around one register tile, where the stages after the anchor go.
        lane: the loop over the elements of one vector.
        steps: the loop over the steps of the sum that are written out, None where the nest is staged.
        innermost: the innermost loop over steps of the sum that is not unrolled.

    Args:
        sampler: of the schedule.
        anchor: the stage.
        roles: of its axes.
        block: its block; loops behind the stage's axes stay innermost.
        vectorised: whether one vector is one operation; otherwise `lane` is left to the caller.
        staged: whether the last reduction axis of the stage is that of a block before it, which is computed
            in the innermost loop of the nest; nothing is unrolled around it.
        together: whether `steps` is inside of the tile, next to `lane`, and is left to the caller: one vector
            of sums then takes all of its products in turn.
    """

    def __init__(
        self,
        sampler: Sampler,
        anchor: Stage,
        roles: Roles,
        block: Any,
        threads: int,
        vectorised: bool = True,
        staged: bool = False,
        together: bool = False,
    ) -> None:
        self._schedule = schedule = sampler.schedule
        self._block = block
        values = {
            d: sampler.value(d) for d in ("vectors", "rows", "rows2", "panel", "block", "block2", "pad")
        }
        self._counts = counts_of(roles, values)
        self._roles = roles
        loops = schedule.get_loops(block)
        self._outer = [loops[i] for i in roles.outer if i != roles.second]
        self._outer_extents = [anchor.axes[i].extent for i in roles.outer if i != roles.second]
        row = self._row_loop(schedule, loops)
        v_outer, v_panel, v_reg, v_lane = schedule.split(
            loops[roles.vector], [None, sampler.sample("panel"), sampler.sample("vectors"), roles.lanes]
        )
        r_outer, r_block, r_reg = schedule.split(row, [None, sampler.sample("block"), sampler.sample("rows")])
        second, inner, inner_rows = None, [r_block], [r_reg]
        self._bands: list[Any] = []
        parts = row_bands(anchor, roles, self._counts, threads)
        if parts > 1:
            band, r_outer = schedule.split(r_outer, [parts, None])
            self._bands = [band]
        if roles.second is not None:
            second, s_block, s_reg = schedule.split(
                loops[roles.second], [None, sampler.sample("block2"), sampler.sample("rows2")]
            )
            inner, inner_rows = [s_block, r_block], [s_reg, r_reg]
            parts = bands(roles, self._counts, threads)
            if parts > 1:
                band, second = schedule.split(second, [parts, None])
                self._bands = [band]
        reduction = [loops[i] for i in roles.reduction[:-1]]
        inner_steps: list[Any] = []
        if not staged:
            outer_steps, steps = schedule.split(loops[roles.reduction[-1]], [None, sampler.sample("unroll")])
            reduction, inner_steps = [*reduction, outer_steps], [steps]
        self.steps = inner_steps[0] if inner_steps else None
        self._arrange(second, r_outer, v_outer)
        schedule.reorder(
            *self._outer,
            *self._free,
            *self._kept,
            *inner,
            v_panel,
            *reduction,
            *([] if together else inner_steps),
            *inner_rows,
            v_reg,
            *(inner_steps if together else []),
            v_lane,
        )
        for loop in (*inner_rows, v_reg):
            schedule.unroll(loop)
        if not staged:
            self._unroll(sampler, anchor, reduction, None if together else inner_steps[0])
        self.lane = v_lane
        if vectorised:
            schedule.vectorize(v_lane)
        self.attach = v_panel
        self._around_block = [*self._outer, *self._free, *self._kept][-1]
        self._panels = v_outer
        self._parallel: tuple[Any, int] = (None, 0)
        self._tile_loops = [*inner, v_panel]
        self._reduction = reduction
        self.innermost = reduction[-1]
        self._panel_vectors = values["vectors"] * values["panel"]
        self._first_reduction = reduction[0]
        self._row_loops = [r_outer, r_block]
        self._border_loops = [loop for loop in (second, r_outer, *inner) if loop is not None]
        self._vector_loops = [v_outer, v_panel]

    def _row_loop(self, schedule: s_tir.Schedule, loops: list[Any]) -> Any:
        rows = self._roles.rows
        if not rows:
            return schedule.add_unit_loop(loops[self._roles.vector])
        return schedule.fuse(*[loops[i] for i in rows]) if len(rows) > 1 else loops[rows[0]]

    def _arrange(self, second: Any, rows: Any, vectors: Any) -> None:
        """Loops that can be fused for parallel execution first, those whose borders are peeled inside."""
        counts, roles = self._counts, self._roles
        named = {"rows": (rows, counts.tile_blocks), "vectors": (vectors, counts.panel_blocks)}
        if second is not None:
            named["second"] = (second, counts.second_blocks)
        peeled = peeled_loops(roles, counts)
        ordered = [name for name in outer_order(roles, counts) if name in named]
        free = [named[name] for name in ordered if name not in peeled]
        self._free = [*self._bands, *(loop for loop, _ in free)]
        extents = [int(self._schedule.get(band).extent) for band in self._bands]
        self._free_extents = [*extents, *(extent for _, extent in free)]
        self._kept = [named[name][0] for name in ordered if name in peeled]

    def _unroll(self, sampler: Sampler, anchor: Stage, reduction: list[Any], depth_inner: Any) -> None:
        if depth_inner is not None and sampler.value("unroll") > 1:
            self._schedule.unroll(depth_inner)
        if sampler.value("window"):
            for position, loop in zip(self._roles.reduction, reduction, strict=True):
                if position != self._roles.reduction[-1] or anchor.axes[position].extent <= 16:
                    self._schedule.unroll(loop)

    def copy_in_block(self, name: str, lanes: int) -> None:
        """Makes what one block reads of a stage before each block; before `parallelise`.

        Args:
            name: of the stage, whose innermost axis is that of the vectors.
            lanes: elements of one vector.
        """
        schedule = self._schedule
        block = schedule.get_sblock(name)
        schedule.compute_at(block, self._around_block)
        _, inner = schedule.split(schedule.get_loops(block)[-1], [None, lanes])
        schedule.vectorize(inner)

    def parallelise(self, threads: int) -> None:
        """Runs the outermost loops in parallel; before `finish`, which makes them unfit for it."""
        self._parallel = fuse_parallel(
            self._schedule, [*self._outer, *self._free], [*self._outer_extents, *self._free_extents], threads
        )

    def finish(self) -> Any:
        """Marks the loops whose borders are peeled and separates initialisation from the update.

        Returns:
            The block of the initialisation.
        """
        marked = (
            self._border_loops if self._counts.peeled else self._row_loops if self._counts.ragged_rows else []
        )
        if self._roles.ragged_vectors:
            marked = [*marked, *self._vector_loops]
        for loop in marked:
            self._schedule.annotate(loop, PEEL, 1)
        return self._schedule.decompose_reduction(self._block, self._first_reduction)

    def loop_inside(self, block: Any) -> Any:
        """The outermost loop of a block within a tile: of its sums, or of what they start from."""
        schedule, attach = self._schedule, self._schedule.get(self.attach)
        loops = schedule.get_loops(block)
        return loops[next(i for i, loop in enumerate(loops) if schedule.get(loop).same_as(attach)) + 1]

    def prefetch(self, weights: Access, parts: int = 1) -> None:
        """Fetches the weights of the next panels while these are used; after `finish`.

        Args:
            weights: packed, so that the panels lie one behind the other.
            parts: elements of the buffer that count as one of the access.
        """
        schedule = self._schedule
        [buffer] = [r.source for r in schedule.get(self._block).reads if r.source.name == weights.buffer]
        panel = weights.groups[self._roles.vector][1] * self._panel_vectors
        lines = -(-panel // LINE_ELEMENTS)
        place, steps_of = self._fetching_loops(lines)
        step, steps = linear(steps_of)
        start = (self._panel_number() + 1) * panel

        def element(line: Any) -> Any:
            return (start + line * LINE_ELEMENTS) * parts

        prefetch_in(schedule, place, buffer, step, lines, steps, element)

    def _fetching_loops(self, lines: int) -> tuple[Any, list[tuple[Any, int]]]:
        """The loops whose iterations share the lines to fetch: as few as leave a short burst to each.

        What is fetched within the innermost loop costs every step of the sum a branch: a product of 512 x 64
        with 64 x 4096 is 1.36 times as fast with the fetches before each tile. A long sum is cut for them.

        Returns:
            The innermost of them, and variable and extent of all, outermost first.
        """
        tile = [*self._within_panel(), *map(self._counted, self._tile_loops)]
        steps = math.prod(extent for _, extent in tile)
        place = self._tile_loops[-1]
        for loop in self._reduction:
            if lines <= _BURST * steps:
                break
            extent = self._extent(loop)
            wanted = min(extent, -(-lines // (_BURST * steps)))
            pieces = next(size for size in range(wanted, extent + 1) if extent % size == 0)
            if loop is self._reduction[-1] and pieces < extent:
                loop, _ = self._schedule.split(loop, [pieces, None])
            place = loop
            tile.append(self._counted(loop))
            steps *= self._extent(loop)
        return place, tile

    def _within_panel(self) -> list[tuple[Any, int]]:
        """Variables and extents of the loops between the one over blocks of panels and those of a tile."""
        parallel, count = self._parallel
        loops = [*self._outer, *self._free]
        position = next(i for i, loop in enumerate([*loops, *self._kept]) if loop is self._panels)
        found = []
        if position < count:
            inside = math.prod([*self._outer_extents, *self._free_extents][position + 1 : count])
            if inside > 1:
                found.append((self._schedule.get(parallel).loop_var % inside, inside))
        rest = [*loops, *self._kept][max(position + 1, count) :]
        return [*found, *map(self._counted, rest)]

    def _counted(self, loop: Any) -> tuple[Any, int]:
        return self._schedule.get(loop).loop_var, self._extent(loop)

    def _extent(self, loop: Any) -> int:
        return int(self._schedule.get(loop).extent)

    def _panel_number(self) -> Any:
        """Number of the block of panels, from the loop over them or from the parallel loop it went into."""
        parallel, count = self._parallel
        extents = [*self._outer_extents, *self._free_extents]
        loops = [*self._outer, *self._free][:count]
        position = next((i for i, loop in enumerate(loops) if loop is self._panels), None)
        if position is None:
            return self._schedule.get(self._panels).loop_var
        inside = math.prod(extents[position + 1 : count])
        return self._schedule.get(parallel).loop_var // inside % extents[position]
