"""Depthwise convolutions of bytes as lowering writes them for processors with VPDPBUSD or SDOT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm

from host.lowering.expressions.stage import Stage
from host.lowering.graph import Value, constant
from host.lowering.passes.integers.rows_of_taps import in_rows
from host.model import Task
from targets import HardwareModel
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu import dot_cases

_ZERO = 5


@dataclass(frozen=True)
class Depthwise:
    """A convolution of each channel by itself, a shift by channel, a scale and quantisation.

    Attributes:
        height, width, channels: of the image.
        taps, stride, dilation: down and across.
        padded: whether the padding keeps the size of the image; without, there is none.
        dtype: of the image and of the result.
        fill: what lies beyond the image.
    """

    height: int
    width: int
    channels: int
    taps: int
    stride: int = 1
    dilation: int = 1
    padded: bool = True
    dtype: str = "uint8"
    fill: int = 7

    @property
    def edge(self) -> int:
        """The padding of each side."""
        return self.dilation * (self.taps // 2) if self.padded else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        reach = self.dilation * (self.taps - 1) + 1
        sizes = ((size + 2 * self.edge - reach) // self.stride + 1 for size in (self.height, self.width))
        return (1, *sizes, self.channels)

    def weights(self) -> np.ndarray:
        """Seeded signed bytes [taps, taps, channels], the least and the greatest among them."""
        draw = np.random.default_rng(3)
        made = draw.integers(-128, 128, (self.taps, self.taps, self.channels)).astype(np.int8)
        made[0, 0, 0], made[-1, -1, -1] = -128, 127
        return made

    def packed(self, hardware: HardwareModel) -> np.ndarray:
        """The weights in the order in which the function reads them."""
        found = dot_cases.computed(
            "integer_depthwise_conv", self._operands(), self.shape, "int32", self._attrs()
        )
        assert found.producer is not None
        return in_rows(found.producer, self.weights(), hardware)

    def task(self, hardware: HardwareModel, transposed: bool = False) -> Task:
        """The function; with channels first where the result is transposed."""
        x, _ = self._operands()
        packed, shape = self.packed(hardware), self.shape
        operands = (x, Value(packed.shape, "int8", packed))
        sums = dot_cases.computed("dot_depthwise_conv", operands, shape, "int32", self._attrs())
        shift = Value((self.channels,), "int32", np.zeros(self.channels, "int32"))
        scale = Value((self.channels,), "float32", np.ones(self.channels, "float32"))
        total = dot_cases.computed("add", (sums, shift), shape, "int32", {})
        total = dot_cases.computed("cast", (total,), shape, "float32", {})
        total = dot_cases.computed("multiply", (total, scale), shape, "float32", {})
        parts = (total, constant(1.0, "float32"), constant(_ZERO, self.dtype))
        result = dot_cases.computed("quantize", parts, shape, self.dtype, {})
        if transposed:
            axes = (0, 3, 1, 2)
            moved = tuple(shape[axis] for axis in axes)
            result = dot_cases.computed("transpose", (result,), moved, self.dtype, {"axes": axes})
        stage = Stage()
        for node in dot_cases.order(result):
            assert node.spec.write is not None
            node.spec.write(stage, node)
        made = stage.tensor(result, "epilogue")
        function = tvm.te.create_prim_func([*stage.arguments.values(), made])
        return fn.task(function, "dot_depthwise_conv")

    def expected(self, hardware: HardwareModel) -> tuple[list[np.ndarray], np.ndarray]:
        """Seeded arguments without the result, and the result before a transpose, in numpy."""
        draw, edge = np.random.default_rng(5), self.edge
        limits = np.iinfo(self.dtype)
        x = draw.integers(limits.min, limits.max + 1, (1, self.height, self.width, self.channels))
        x = x.astype(self.dtype)
        shift = draw.integers(-3000, 3000, self.channels).astype(np.int32)
        scale = (draw.random(self.channels) * 2e-2 / self.taps).astype(np.float32)
        image = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)), constant_values=self.fill)
        total, given = np.zeros(self.shape, np.int64), self.weights()
        _, rows, columns, _ = self.shape
        for down, across in np.ndindex(self.taps, self.taps):
            top, left = down * self.dilation, across * self.dilation
            bottom, right = top + self.stride * (rows - 1) + 1, left + self.stride * (columns - 1) + 1
            part = image[:, top : bottom : self.stride, left : right : self.stride]
            total += part.astype(np.int64) * given[down, across]
        real = (total + shift).astype(np.float32) * scale
        wanted = np.clip(np.rint(real) + _ZERO, limits.min, limits.max).astype(self.dtype)
        return [x, self.packed(hardware), shift, scale], wanted

    def _operands(self) -> tuple[Value, Value]:
        x = Value((1, self.height, self.width, self.channels), self.dtype, name="x")
        return x, constant(self.weights())

    def _attrs(self) -> dict[str, object]:
        return {
            "strides": (self.stride, self.stride),
            "padding": (self.edge,) * 4,
            "dilation": (self.dilation, self.dilation),
            "groups": self.channels,
            "fill": self.fill,
            "down": self.taps,
        }
