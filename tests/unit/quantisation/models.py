"""Models of convolutions and of attention with seeded weights, and samples for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.integration.small_models import floats, save

SAMPLES = 12


@dataclass
class _Graph:
    """Nodes and weights of a model that grows."""

    draw: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        name = f"w{len(self.weights)}"
        count = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        self.weights[name] = (scale * self.draw.normal(size=shape) / np.sqrt(count)).astype(np.float32)
        return name

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: object) -> str:
        made = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [made], name=name, **attributes))
        return made

    def constant(self, values: Sequence[float] | Sequence[int], dtype: type = np.float32) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.array(values, dtype)
        return name

    def written(self, path: Path, given: onnx.ValueInfoProto, result: str, *made: int) -> Path:
        self.add("Identity", result)
        self.nodes[-1].output[0] = "scores"
        return save(path, self.nodes, [given], [floats("scores", *made)], self.weights)


def mobile(path: Path, blocks: int = 3, outlier: float = 1.0) -> Path:
    """Inverted residuals on 1x3x32x32: convolutions of 1x1, depthwise ones, clipped, with sums around them.

    Args:
        path: of the file.
        blocks: number of them.
        outlier: factor of one input channel of the classifier, whose activations then need a wide range.
    """
    graph = _Graph(np.random.default_rng(0))
    low, high = graph.constant(0.0), graph.constant(6.0)

    def clipped(value: str) -> str:
        return graph.add("Clip", value, low, high)

    x = graph.add("Conv", "image", graph.weight(16, 3, 3, 3), name="stem", strides=[2, 2], pads=[1] * 4)
    x = clipped(x)
    for block in range(blocks):
        wide = graph.add("Conv", x, graph.weight(48, 16, 1, 1), name=f"block{block}/expand")
        deep = graph.add(
            "Conv",
            clipped(wide),
            graph.weight(48, 1, 3, 3),
            name=f"block{block}/depthwise",
            group=48,
            pads=[1] * 4,
        )
        narrow = graph.add("Conv", clipped(deep), graph.weight(16, 48, 1, 1), name=f"block{block}/project")
        x = graph.add("Add", x, narrow)
    pooled = graph.add("Flatten", graph.add("GlobalAveragePool", x))
    spread = np.ones(16, np.float32)
    spread[0] = outlier
    scaled = graph.add("Mul", pooled, graph.constant(spread))
    head = graph.weight(16, 10)
    graph.weights[head][0] /= outlier
    result = graph.add("Gemm", scaled, head, graph.weight(10), name="classifier")
    return graph.written(path, floats("image", 1, 3, 32, 32), result, 1, 10)


def vision(path: Path, blocks: int = 2, width: int = 32) -> Path:
    """Attention over 16 patches of 1x3x32x32, with normalised layers and GELU."""
    graph = _Graph(np.random.default_rng(1))
    heads = graph.constant([1, 16, 2, width // 2], np.int64)
    joined = graph.constant([1, 16, width], np.int64)
    half, one, root = graph.constant(0.5), graph.constant(1.0), graph.constant(np.sqrt(2.0))
    patches = graph.add("Conv", "image", graph.weight(width, 3, 8, 8), name="patches", strides=[8, 8])
    x = graph.add(
        "Transpose", graph.add("Reshape", patches, graph.constant([1, width, 16], np.int64)), perm=[0, 2, 1]
    )

    def normalised(value: str) -> str:
        scale = graph.constant(graph.draw.uniform(0.5, 2.0, width))
        return graph.add("LayerNormalization", value, scale, graph.weight(width), axis=-1)

    for block in range(blocks):
        n = normalised(x)
        parts = []
        for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            made = graph.add("MatMul", n, graph.weight(width, width), name=f"block{block}/{part}")
            parts.append(graph.add("Transpose", graph.add("Reshape", made, heads), perm=perm))
        scores = graph.add("Softmax", graph.add("MatMul", parts[0], parts[1]), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", scores, parts[2]), perm=[0, 2, 1, 3])
        out = graph.add(
            "MatMul", graph.add("Reshape", mixed, joined), graph.weight(width, width), name=f"block{block}/o"
        )
        x = graph.add("Add", x, out)
        wide = graph.add("MatMul", normalised(x), graph.weight(width, 4 * width), name=f"block{block}/wide")
        gate = graph.add("Add", graph.add("Erf", graph.add("Div", wide, root)), one)
        bent = graph.add("Mul", graph.add("Mul", wide, gate), half)
        x = graph.add(
            "Add", x, graph.add("MatMul", bent, graph.weight(4 * width, width), name=f"block{block}/narrow")
        )
    axes = graph.constant([1], np.int64)
    result = graph.add("ReduceMean", normalised(x), axes, keepdims=0)
    result = graph.add("Gemm", result, graph.weight(width, 10), graph.weight(10), name="classifier")
    return graph.written(path, floats("image", 1, 3, 32, 32), result, 1, 10)


def samples(path: Path, count: int = SAMPLES, **shapes: tuple[int, ...]) -> Path:
    """Noise on smooth images, as a calibration of the models here or of inputs of other shapes."""
    draw = np.random.default_rng(7)
    arrays = {}
    for name, shape in (shapes or {"image": (1, 3, 32, 32)}).items():
        values = draw.normal(size=(count, *shape)) + draw.normal(size=(count, *(1 for _ in shape)))
        arrays[name] = values.astype(np.float32)
    np.savez(path, **arrays)
    return path


def constants(path: Path) -> dict[str, np.ndarray]:
    """The weights of a file by name."""
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
