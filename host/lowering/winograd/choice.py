"""Whether a convolution is faster by Winograd's algorithm: an estimate from the hardware model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from host.lowering.winograd.transforms import TILES, Transform
from targets import HardwareModel

# Share of the peak that the products reach, from measured kernels: operands of the transformed ones do not
# stay in the first level.
_DIRECT_EFFICIENCY, _WINOGRAD_EFFICIENCY = 0.93, 0.88
# Multiply-adds in whose time one accumulator is filled and stored: it counts where reductions are short.
_ACCUMULATOR = 3.0
# Operations that add a block of products of halves to a sum in single precision: two conversions and two
# additions for each vector of halves.
_ADDED_UP = 4.0
# A store of a vector occupies the store port this many cycles; transforms store all they compute.
_STORE_CYCLES = 1.5
# Winograd has to be estimated this much faster: its result is less exact, and estimates err.
_MARGIN = 1.15


@dataclass(frozen=True)
class Shape:
    """A 3x3 convolution with stride 1.

    Attributes:
        batch, height, width: of the result.
        channels_in, channels_out: channels.
        lanes: output channels side by side in the packed weights; a divisor of `channels_out`.
    """

    batch: int
    height: int
    width: int
    channels_in: int
    channels_out: int
    lanes: int

    def tiles(self, outputs: int) -> int:
        """Tiles of `outputs` x `outputs` results that cover the whole."""
        return self.batch * -(-self.height // outputs) * -(-self.width // outputs)


def best_tile(shape: Shape, hardware: HardwareModel, block: int = 0) -> int | None:
    """The tile size with the least estimated time; None where the direct convolution is as good.

    Args:
        shape: of the convolution.
        hardware: that computes it.
        block: products that the direct convolution sums up in halves; 0 where it is in single precision.
    """
    times = {outputs: winograd_seconds(shape, outputs, hardware) for outputs in TILES}
    best = min(times, key=lambda outputs: times[outputs])
    direct = half_direct_seconds(shape, block, hardware) if block else direct_seconds(shape, hardware)
    return best if times[best] * _MARGIN < direct else None


def direct_seconds(shape: Shape, hardware: HardwareModel) -> float:
    """Estimated seconds of the direct convolution on one core."""
    points = shape.batch * shape.height * shape.width
    operations = points * (shape.channels_out // shape.lanes) * (9 * shape.channels_in + _ACCUMULATOR)
    return _with_weights(_product_seconds(operations, shape, hardware) / _DIRECT_EFFICIENCY, shape, hardware)


def half_direct_seconds(shape: Shape, block: int, hardware: HardwareModel) -> float:
    """Estimated seconds of the direct convolution on one core, its products summed in blocks of halves."""
    wide = replace(shape, lanes=2 * shape.lanes)
    products = 9 * shape.channels_in * (1.0 + _ADDED_UP / block) + _ACCUMULATOR
    points = shape.batch * shape.height * shape.width
    operations = points * (shape.channels_out // wide.lanes) * products
    seconds = _product_seconds(operations, wide, hardware.on_halves()) / _DIRECT_EFFICIENCY
    return _with_weights(seconds, shape, hardware)


def winograd_seconds(shape: Shape, outputs: int, hardware: HardwareModel) -> float:
    """Estimated seconds with tiles of `outputs` x `outputs` on one core.

    The weights are transformed on the way: memory sees the nine taps that the direct convolution reads.
    """
    transform = TILES[outputs]
    tiles, blocks = shape.tiles(outputs), shape.channels_out // shape.lanes
    elements = transform.size**2
    products = _product_seconds(
        elements * tiles * blocks * (shape.channels_in + _ACCUMULATOR), shape, hardware
    )
    input_vectors = tiles * shape.channels_in / vector_width(shape.channels_in, hardware.lanes)
    cycles = input_vectors * input_cycles(transform, hardware)
    cycles += blocks * shape.channels_in * weight_cycles(transform, shape.lanes, hardware)
    cycles += tiles * blocks * output_cycles(transform, shape.lanes, hardware)
    seconds = products / _WINOGRAD_EFFICIENCY + cycles / hardware.frequency_hz
    transformed = 4 * elements * tiles * shape.channels_in
    seconds += 2 * transformed / hardware.level_of(transformed).bandwidth_bytes_per_s
    return _with_weights(seconds, shape, hardware)


def input_cycles(transform: Transform, hardware: HardwareModel) -> float:
    """Cycles to transform one vector of channels of one input tile."""
    size = transform.size
    return _cycles(2 * size * transform.input_operations, size**2, size**2, hardware)


def weight_cycles(transform: Transform, lanes: int, hardware: HardwareModel) -> float:
    """Cycles to transform the nine taps of one input channel and `lanes` output channels."""
    size = transform.size
    vectors = max(1.0, lanes / hardware.lanes)
    return vectors * _cycles((3 + size) * transform.weight_operations, 9, size**2, hardware)


def output_cycles(transform: Transform, lanes: int, hardware: HardwareModel) -> float:
    """Cycles to transform `lanes` channels of one tile of products, which come from a farther cache."""
    size, outputs = transform.size, transform.outputs
    arithmetic = (size + outputs) * transform.output_operations
    one = _cycles(arithmetic, size**2, outputs**2, hardware) + size**2 / hardware.loads_per_cycle
    return max(1.0, lanes / hardware.lanes) * one


def _cycles(arithmetic: float, loads: float, stores: float, hardware: HardwareModel) -> float:
    """Cycles of straight code: of the arithmetic units or of instruction supply, and of its stores."""
    supply = (arithmetic + loads + stores) / hardware.issue_width
    return max(arithmetic / hardware.fma_per_cycle, supply) + _STORE_CYCLES * stores


def vector_width(channels: int, lanes: int) -> int:
    """Elements per vector along the input channels: the widest power of two that divides them."""
    width = lanes
    while channels % width:
        width //= 2
    return width


def _product_seconds(operations: float, shape: Shape, hardware: HardwareModel) -> float:
    """Seconds of multiply-adds of vectors of `shape.lanes` at the peak."""
    # A vector of half the width costs half a slot where two of them start in a cycle, never less.
    share = max(0.5, shape.lanes / hardware.lanes)
    return operations * share * 2.0 * hardware.lanes / hardware.peak_flops


def _with_weights(seconds: float, shape: Shape, hardware: HardwareModel) -> float:
    """The time of the whole: not less than reading the weights, which earlier layers have displaced."""
    size = 36 * shape.channels_in * shape.channels_out
    return max(seconds, size / hardware.levels[-1].bandwidth_bytes_per_s)
