"""Draws the parts of a random operator: sizes that occur in networks, inputs, epilogues."""

from __future__ import annotations

import math
import random

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant
from host.lowering.ops import known_operators

IMAGES = (4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 19, 20, 24, 26, 28, 30, 32, 36, 38, 40, 48, 52, 56, 60)
_LARGE_IMAGES = (64, 72, 75, 80, 96, 104, 112, 120, 128, 144, 150, 160, 192, 208, 224)
_LENGTHS = (1, 7, 10, 16, 17, 32, 49, 50, 64, 77, 96, 100, 128, 144, 196, 197, 256, 384, 512, 577, 1024)
_ACTIVATIONS = ("", "relu", "clip", "silu", "gelu", "sigmoid", "hard_swish", "leaky_relu", "tanh")
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Typical numbers of outputs of a network's last layer, such as the number of classes.
CLASSES = (1, 2, 3, 4, 5, 10, 21, 35, 91, 100, 255, 1000, 1001, 1008)


class Draw:
    """Builds one operator from random choices.

    Args:
        generator: source of all random choices.

    Attributes:
        random: the generator.
        builder: builds the graph.
        inputs: the graph's inputs so far.
    """

    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self.builder = Builder(known_operators())
        self.inputs: list[Value] = []

    def input(self, *shape: int, dtype: str = "float32") -> Value:
        """Adds an activation to the graph's inputs."""
        self.inputs.append(Value(tuple(shape), dtype, name=f"x{len(self.inputs)}"))
        return self.inputs[-1]

    def weight(self, *shape: int) -> Value:
        """A constant with different elements, so that the lowering does not treat it as a scalar."""
        period = np.linspace(-1.0, 1.0, 1021, dtype="float32")
        return constant(np.resize(period, shape))

    def chance(self, share: float) -> bool:
        """Returns True with this probability."""
        return self.random.random() < share

    def channels(self, most: int = 2048) -> int:
        """A number of channels: log-uniform, mostly a multiple of 8, sometimes any number."""
        size = float(2.0 ** self.random.uniform(3.0, math.log2(most)))
        unit = self.random.choice((1, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64))
        return max(1, round(size / unit)) * unit

    def few_channels(self) -> int:
        """A small number of channels, such as those of images, masks and squeezed layers."""
        return self.random.choice((1, 2, 3, 4, 6, 8, 10, 12, 20, 24, 28, 48))

    def image(self) -> int:
        """The side length of an image."""
        return self.random.choice(IMAGES if self.chance(0.75) else _LARGE_IMAGES)

    def length(self, least: int = 1) -> int:
        """The length of a sequence, mostly a common one."""
        if self.chance(0.2):
            return self.random.randint(max(2, least), 640)
        return self.random.choice([length for length in _LENGTHS if length >= least])

    def batch(self) -> int:
        """The number of images in a batch, mostly one."""
        return self.random.choice((1, 1, 1, 1, 1, 1, 2, 4, 8))

    def sequences(self) -> Value:
        """An input with the rows of a sequence, [rows, width] or [1, rows, width]."""
        rows, width = self.length(), self.channels()
        return self.input(rows, width) if self.chance(0.5) else self.input(1, rows, width)

    def activation(self, value: Value) -> Value:
        """Applies an activation function or none."""
        kind = self.random.choice(_ACTIVATIONS)
        if kind == "clip":
            return self.builder.unary("clip", value, low=0.0, high=6.0)
        if kind == "leaky_relu":
            return self.builder.unary("leaky_relu", value, alpha=0.1)
        return self.builder.unary(kind, value) if kind else value

    def epilogue(self, value: Value) -> Value:
        """Applies what can follow an operator: a bias, an activation, adding another tensor, a gate."""
        if self.chance(0.8):
            value = self.builder.binary("add", value, self.weight(value.shape[-1]))
        added = self.chance(0.25)
        first = self.chance(0.5)
        if added and first:
            value = self.builder.binary("add", value, self.input(*value.shape))
        value = self.activation(value)
        if added and not first:
            value = self.builder.binary("add", value, self.input(*value.shape))
        if self.chance(0.03):
            value = self.builder.binary("multiply", value, self.input(*value.shape))
        return value
