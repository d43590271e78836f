"""Sums and products of quantised tensors are one operation on bytes, which rounds as ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tvm import relax

from host.engines import run_reference
from host.importers import load_here as load
from host.lowering import lower
from host.model import LoweredModel
from tests.unit.lowering.harness import board, flat, functions

# Zero points and scales of two operands and a result under which rounding after every step gives other bytes
# than ONNX Runtime for 4 pairs of a sum, and for 110 pairs of a product.
SUM = ((44, 50, 95), (0.038557540625333786, 0.031560804694890976, 0.047058768570423126))
PRODUCT = ((143, 20, 79), (0.028384478762745857, 0.023097582161426544, 0.031207172200083733))
CASES = {"Add": SUM, "Mul": PRODUCT, "MatMul": ((120, 130, 128), (0.02, 0.03, 0.11))}
PAIRS = np.stack(np.meshgrid(np.arange(256), np.arange(256), indexing="ij")).reshape(2, -1)


def write(
    path: Path, operator: str, between: Sequence[str], dtype: str, shapes: Sequence[Sequence[int]], zero: int
) -> Path:
    """A model of two quantised inputs, an operator, others behind it, and a quantisation.

    `zero` is the zero point of the result.
    """
    zeros, scales = CASES[operator]
    moved = 0 if dtype == "uint8" else -128
    constants = {}
    nodes: list[NodeProto] = []
    for name, point, scale in zip("aby", (*zeros[:2], zero), scales, strict=True):
        constants[f"{name}_scale"] = np.float32(scale)
        constants[f"{name}_zero"] = np.array(point + moved, dtype)
    for name in "ab":
        nodes += pair(name, f"{name}_real", name)
    nodes.append(helper.make_node(operator, ["a_real", "b_real"], ["r0"]))
    for index, kind in enumerate(between):
        nodes.append(helper.make_node(kind, [f"r{index}"], [f"r{index + 1}"]))
    nodes += pair(f"r{len(between)}", "y", "y")
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip("ab", shapes, strict=True)
    ]
    made = (
        np.broadcast_shapes(*[tuple(shape) for shape in shapes])
        if operator != "MatMul"
        else [
            *shapes[0][:-1],
            shapes[1][-1],
        ]
    )
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    body = helper.make_graph(nodes, "bytes", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(body, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def pair(source: str, target: str, name: str) -> list[NodeProto]:
    """A tensor quantised and dequantised again."""
    parameters = [f"{name}_scale", f"{name}_zero"]
    return [
        helper.make_node("QuantizeLinear", [source, *parameters], [f"{target}_bytes"]),
        helper.make_node("DequantizeLinear", [f"{target}_bytes", *parameters], [target]),
    ]


def operands(operator: str, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Numbers that are quantised to every pair of bytes, or to as many as the shapes have room for."""
    zeros, scales = CASES[operator]
    return [
        np.resize((values - zero) * np.float32(scale), shape).astype("float32")
        for values, zero, scale, shape in zip(PAIRS, zeros, scales, shapes, strict=False)
    ]


def run(model: LoweredModel, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """As compiled for a processor with fused multiplications and additions."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    machine = relax.VirtualMachine(tvm.compile(model.module, target=target), tvm.cpu())
    arguments = [tvm.runtime.tensor(array) for array in [*inputs, *model.parameters]]
    (found,) = flat(machine["main"](*arguments))
    return found


def lowered(path: Path) -> LoweredModel:
    fused = board()
    return lower(load(path), replace(fused, tvm_target={**fused.tvm_target, "mcpu": "x86-64-v3"}))


needs_fused_products = pytest.mark.skipif(
    " fma " not in Path("/proc/cpuinfo").read_text(encoding="utf-8"), reason="the processor has no FMA"
)


@needs_fused_products
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_every_pair_of_bytes_gives_the_byte_of_onnx_runtime(
    tmp_path: Path, operator: str, dtype: str
) -> None:
    shapes = [(256, 256), (256, 256)]
    path = write(tmp_path / "model.onnx", operator, (), dtype, shapes, CASES[operator][0][2])
    inputs = operands(operator, shapes)
    ((expected,),) = run_reference("onnxruntime", path, [inputs])
    model = lowered(path)
    assert any(f"{'add' if operator == 'Add' else 'multiply'}_bytes" in name for name in functions(model))
    np.testing.assert_array_equal(run(model, inputs), expected)
    assert len(np.unique(expected)) > 100


@needs_fused_products
@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_operands_broadcast(tmp_path: Path, operator: str) -> None:
    shapes = [(1, 64, 30, 30), (1, 64, 1, 1)]
    path = write(tmp_path / "model.onnx", operator, (), "uint8", shapes, CASES[operator][0][2])
    inputs = operands(operator, shapes)
    ((expected,),) = run_reference("onnxruntime", path, [inputs])
    model = lowered(path)
    assert any("_bytes" in name for name in functions(model))
    # A sum with one number of a channel is added up in another order there.
    assert (run(model, inputs) != expected).mean() <= (1e-4 if operator == "Add" else 0.0)


@needs_fused_products
@pytest.mark.parametrize(("zero", "joined"), [(0, True), (95, False)])
def test_a_relu_goes_where_the_saturation_does_the_same(tmp_path: Path, zero: int, joined: bool) -> None:
    shapes = [(256, 256), (256, 256)]
    path = write(tmp_path / "model.onnx", "Add", ["Relu"], "uint8", shapes, zero)
    inputs = operands("Add", shapes)
    ((expected,),) = run_reference("onnxruntime", path, [inputs])
    model = lowered(path)
    assert any("add_bytes" in name for name in functions(model)) == joined
    assert (run(model, inputs) != expected).mean() <= (0.0 if joined else 1e-3)


@needs_fused_products
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_matrix_products_of_activations_have_one_factor_for_all_scales(tmp_path: Path, dtype: str) -> None:
    shapes = [(8, 128, 200), (8, 200, 128)]
    path = write(tmp_path / "model.onnx", "MatMul", (), dtype, shapes, 128)
    draw, (zeros, scales) = np.random.default_rng(0), CASES["MatMul"]
    inputs = [
        ((draw.integers(0, 256, shape) - zero) * np.float32(scale)).astype("float32")
        for shape, zero, scale in zip(shapes, zeros, scales, strict=False)
    ]
    ((expected,),) = run_reference("onnxruntime", path, [inputs])
    np.testing.assert_array_equal(run(lowered(path), inputs), expected)
    assert len(np.unique(expected)) > 100


@needs_fused_products
@pytest.mark.parametrize("axis", [-1, 1])
def test_a_quantised_softmax_has_the_scale_of_the_runtime(tmp_path: Path, axis: int) -> None:
    """A scale above 1/200 by less than a step: ONNX Runtime multiplies by 199, and 200 gives other steps."""
    constants = {"a_scale": np.float32(0.05), "a_zero": np.uint8(128)}
    constants |= {"y_scale": np.float32(1 / 199.9), "y_zero": np.uint8(0)}
    softmax = helper.make_node("Softmax", ["a_real"], ["r"], axis=axis)
    nodes = [*pair("a", "a_real", "a"), softmax, *pair("r", "y", "y")]
    shape = (4, 16, 40)
    inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    body = helper.make_graph(nodes, "softmax", inputs, outputs, tensors)
    path = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(body, opset_imports=opsets, ir_version=10).SerializeToString())
    given = [(np.random.default_rng(0).normal(size=shape) * 3).astype("float32")]
    ((expected,),) = run_reference("onnxruntime", path, [given])
    found = run(lowered(path), given)
    assert (found != expected).mean() <= 1e-3
    exact = np.exp(given[0]) / np.exp(given[0]).sum(axis=axis, keepdims=True)
    assert (np.rint(exact * 199.9) != np.rint(expected * 199.9)).mean() > 1e-2


def test_a_sum_that_others_read_stays_in_floats(tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", "Add", ["Sigmoid"], "uint8", [(4, 8), (4, 8)], 0)
    assert not any("add_bytes" in name for name in functions(lowered(path)))
