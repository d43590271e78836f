"""Weights of four bits in DequantizeLinear, with scales along an axis or of blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from host.importers import load_here as load
from tests.unit.importers.harness import graph, run_model, value

_DRAW = np.random.default_rng(0)
_KINDS = {"int4": (TensorProto.INT4, -8, 8), "uint4": (TensorProto.UINT4, 0, 16)}


def _narrow(name: str, kind: str, shape: tuple[int, ...]) -> TensorProto:
    code, low, high = _KINDS[kind]
    return helper.make_tensor(name, code, shape, _DRAW.integers(low, high, shape).reshape(-1).tolist())


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("block, axis", [(0, 1), (8, 0), (16, 0), (4, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_with_weights_of_four_bits(
    kind: str, block: int, axis: int, dtype: str, tmp_path: Path
) -> None:
    x = _DRAW.normal(size=(3, 20)).astype(dtype)
    sizes = [-(-size // max(block, 1)) if place == axis else size for place, size in enumerate((20, 6))]
    shape = tuple(sizes) if block else (6,)
    scale = _DRAW.uniform(0.1, 0.2, shape).astype(dtype)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"], axis=axis, block_size=block),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    model = graph(nodes, {"x": x}, [value("y", np.zeros((3, 6), dtype))], {"s": scale}, opset=21)
    model.graph.initializer.extend([_narrow("w", kind, (20, 6)), _narrow("z", kind, shape)])
    integers = [numpy_helper.to_array(one) for one in model.graph.initializer if one.name in "wz"]
    wide, zero = (one.astype(np.float32) for one in integers)
    scales = scale.astype(np.float32)
    if block:
        count = (20, 6)[axis]
        zero, scales = (np.repeat(one, block, axis).take(range(count), axis) for one in (zero, scales))
    wanted = (x.astype(np.float32) @ ((wide - zero) * scales)).astype(dtype)
    run_model(tmp_path / "m.onnx", model, {"x": x}, [wanted], absolute=1e-5 if dtype == "float32" else 0.05)


def test_integers_of_four_bits_that_something_else_reads_are_refused(tmp_path: Path) -> None:
    """What becomes of activations depends on the width."""
    x = _DRAW.normal(size=(4,)).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    model = graph(nodes, {"x": x}, [value("y", x)], {"s": np.float32(0.1)}, opset=21)
    model.graph.initializer.append(helper.make_tensor("z", TensorProto.INT4, (), [1]))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    made = load(path, samples=[[x]], reference=lambda *_: [[x]])
    assert made.module is None and "int4" in str(made.reason)


def test_scales_that_are_of_other_blocks_are_refused(tmp_path: Path) -> None:
    node: NodeProto = helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=0, block_size=8)
    x = np.ones((3, 20), np.float32)
    nodes = [node, helper.make_node("MatMul", ["x", "r"], ["y"])]
    made = graph(
        nodes, {"x": x}, [value("y", np.zeros((3, 6), np.float32))], {"s": np.ones((2, 6), np.float32)}
    )
    made.graph.initializer.append(_narrow("w", "int4", (20, 6)))
    made.opset_import[0].version = 21
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    model = load(path, samples=[[x]], reference=lambda *_: [[np.zeros((3, 6), np.float32)]])
    assert model.module is None and "are not those of blocks of 8" in str(model.reason)
