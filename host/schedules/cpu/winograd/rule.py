"""Convolutions by Winograd's algorithm, all of it in one function.

The result is made in blocks of `vectors` vectors of output channels and `tiles` rows of tiles. For each, the
products of all tiles are collected in a buffer that stays in cache, `depth` input channels at a time, and are
transformed to results when they are complete. Weights are transformed just before they are used: that costs
less than fetching the transformed ones, which are 1.8 (2x2) or 4 (4x4 outputs) times as large, from memory.
The input is transformed once: all of it in advance, or, for large images, `span` blocks at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import TILE_VECTORS, UNROLLED_STEPS
from host.schedules.cpu.winograd.cost import CONSTANTS, winograd_seconds
from host.schedules.cpu.winograd.nest import (
    copy_padded,
    place_input,
    place_output,
    place_product,
    place_weights,
    prefetch_weights,
    result_nest,
)
from host.schedules.cpu.winograd.shape import PAD_COPY, PAD_TEST, WinogradShape, winograd_shape
from host.schedules.workload import Workload
from targets import HardwareModel

# Steps of the reduction that are written out in the product's innermost loop.
_STEPS = (1, 2, 4)


class Winograd(Rule):
    """Transforms, products of planes and the result in one nest, in blocks that stay in cache."""

    name = "winograd"
    processor = CPU
    version = 4
    priority = 10
    constants = CONSTANTS
    decisions = (
        TILE_VECTORS,
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("tiles", Level.REGISTER, WordClass.TILE),
        UNROLLED_STEPS,
        DecisionKind("pad", Level.REGISTER, WordClass.SWITCH),
        DecisionKind("depth", Level.BLOCK, WordClass.TILE),
        DecisionKind("span", Level.REGISTER, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The stages that lowering writes for it are there."""
        return winograd_shape(workload, hardware) is not None

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Register tile, blocks of the result, parts of the reduction and of the image."""
        shape = _shape(workload, hardware)
        rows = {size for count in _divisors(shape.down) for size in _divisors(count * shape.across)}
        depths = [
            size for size in _divisors(shape.channels_in) if size % 16 == 0 or size == shape.channels_in
        ]
        return {
            "vectors": tuple(size for size in _divisors(shape.blocks) if size <= 8),
            "rows": tuple(sorted(size for size in rows if size <= 28)),
            "tiles": _divisors(shape.down),
            "unroll": tuple(size for size in _STEPS if shape.channels_in % size == 0),
            "pad": _pad_choices(shape),
            "depth": tuple(depths),
            "span": _divisors(shape.down),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Blocks divide and accumulators fit the registers.

        That bounds the code too: besides the transforms, which have a fixed size, only steps of the product
        are unrolled, at most `_STEPS[-1]` of at most one multiply-add for each register.
        """
        shape = _shape(workload, hardware)
        per_vector = max(1, shape.lanes // hardware.lanes)
        accumulators = values["rows"] * values["vectors"] * per_vector
        return (
            values["tiles"] * shape.across % values["rows"] == 0
            and shape.down % (values["tiles"] * values["span"]) == 0
            and values["depth"] % values["unroll"] == 0
            and accumulators + min(values["vectors"], 4) * per_vector + 1 <= hardware.vector_registers
        )

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles the result and moves every other stage to where it is needed."""
        shape = _shape(workload, hardware)
        schedule = sampler.schedule
        for name in shape.tails:
            schedule.compute_inline(schedule.get_sblock(name))
        nest = result_nest(sampler, shape, threads)
        place_output(schedule, nest)
        product = place_product(sampler, shape, nest)
        place_weights(sampler, shape, nest, product)
        place_input(schedule, shape, nest, threads)
        for stage in shape.pads:
            if sampler.value("pad") == PAD_TEST:
                schedule.compute_inline(schedule.get_sblock(stage.name))
            else:
                copy_padded(schedule, stage.name, shape.input_lanes, threads)
        prefetch_weights(sampler, shape, nest, product)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return winograd_seconds(workload, hardware, threads, values)


def _shape(workload: Workload, hardware: HardwareModel) -> WinogradShape:
    shape = winograd_shape(workload, hardware)
    assert shape is not None, "the rule matched before"
    return shape


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, number + 1) if number % size == 0)


def _pad_choices(shape: WinogradShape) -> tuple[int, ...]:
    """Tests only where one stage pads, at little cost, and its input can be read in vectors."""
    if len(shape.pads) != 1 or shape.pads[0].kind != "padding" or shape.pads[0].expensive:
        return (PAD_COPY,)
    contiguous = all(access.strides[-1] == 1 for access in shape.pads[0].reads)
    return (PAD_COPY, PAD_TEST) if contiguous else (PAD_COPY,)


RULE = Winograd()
