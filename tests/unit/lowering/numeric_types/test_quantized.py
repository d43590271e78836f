"""Quantised products are computed in integers, whatever instruction the processor has for them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from host.engines import run_reference
from host.lowering import lower
from host.lowering.ops.elementwise.quantization import float_difference, quantized
from host.model import ImportedModel, LoweredModel
from host.schedules import scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.cpu.dot.intrinsics import PLAIN
from targets import Board
from targets.nvidia import ORIN_NANO
from tests.scheduling.repetitions import seeds
from tests.unit.lowering.harness import (
    LANES,
    board,
    functions,
    imported,
    relax_module,
    run_lowered_cases,
)
from tests.unit.lowering.numeric_types import quantized_models as models

DOT_PRODUCTS = ("", "u8s8", "s8s8", "s16s16")
# In place of a processor's dot product: a GPU with tensor cores.
GPU = "gpu"


def board_with(dot_product: str, lanes: int = LANES) -> Board:
    found = board(lanes)
    if dot_product == GPU:
        return replace(found, hardware=replace(found.hardware, dot_product="", gpu=ORIN_NANO))
    return replace(found, hardware=replace(found.hardware, dot_product=dot_product))


def check(model: ImportedModel, dot_product: str, largest: float = 0.0) -> LoweredModel:
    """Lower and run; a result may differ from ONNX Runtime's by `largest`, at few places."""
    assert model.module is not None, model.reason
    result = lower(model, board_with(dot_product))
    made = run_lowered_cases(result, [case.inputs for case in model.golden])
    for case, (found,) in zip(model.golden, made, strict=True):
        differences = np.abs(found - case.outputs[0])
        assert differences.max() <= largest * 1.001
        assert (differences > largest / 2).mean() <= 0.01
        assert np.ptp(case.outputs[0]) > 10 * largest
    return result


def products(model: LoweredModel) -> dict[str, str]:
    """Type of the activations by name of the function with a product."""
    return {
        task.name: str(task.function.params[0].dtype)
        for task in model.tasks
        if any(part in task.name for part in ("dense", "conv", "matmul"))
    }


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("dot_product", DOT_PRODUCTS)
def test_a_quantised_product_is_one_function_of_bytes(tmp_path: Path, dtype: str, dot_product: str) -> None:
    result = check(models.gemm(tmp_path, dtype), dot_product)
    ((name, found),) = products(result).items()
    assert found == {"": dtype, "u8s8": "uint8", "s8s8": "int8", "s16s16": "int16"}[dot_product]
    # The bias is part of the sum's correction, the scales are one factor, Relu is where the bytes saturate.
    kind = "dot" if dot_product else "packed"
    assert name == f"fused_{kind}_dense_add_cast_multiply_quantize_dequantize"
    assert sum(task.weight for task in result.tasks) <= 3


@pytest.mark.parametrize("in_floats", [False, True])
@pytest.mark.parametrize("opset", [13, 17, 19, 21])
def test_weights_keep_their_integers(tmp_path: Path, opset: int, in_floats: bool) -> None:
    """The evaluator of ONNX knows how to dequantise weights from version 19 on."""
    result = check(models.gemm(tmp_path, opset=opset, in_floats=in_floats), "u8s8")
    assert list(products(result)) == ["fused_dot_dense_add_cast_multiply_quantize_dequantize"]
    assert sum(task.weight for task in result.tasks) <= 3


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("dot_product", DOT_PRODUCTS)
def test_convolutions_pad_with_the_zero_point(tmp_path: Path, dtype: str, dot_product: str) -> None:
    result = check(models.convolution(tmp_path, dtype), dot_product, 0.05)
    kind = "dot" if dot_product else "packed"
    assert sum(f"{kind}_conv" in name for name in functions(result)) == 2
    assert set(products(result).values()) <= {"uint8", "int8", "int16"}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_tensor_cores_take_bytes_of_either_sign(tmp_path: Path, dtype: str) -> None:
    """Up to 16 weights of a column lie together; of other depths fewer, which divide them."""
    result = check(models.gemm(tmp_path, dtype), GPU)
    assert products(result) == {"fused_dot_dense_add_cast_multiply_quantize_dequantize": dtype}
    # The first layer is quantised here, the second one reads its bytes.
    result = check(models.convolution(tmp_path, dtype), GPU, 0.05)
    assert sum("dot_conv" in name for name in functions(result)) == 2
    assert set(products(result).values()) == {dtype}
    weights = [array for array in result.parameters if array.dtype == np.int8]
    assert weights and {array.shape[-1] for array in weights} <= {4, 8, 16}


def in_bytes(model: LoweredModel) -> bool:
    """Whether the convolution of each channel by itself adds up bytes, whose scales follow behind the sum."""
    return any("depthwise_conv_add_cast_multiply" in name for name in functions(model))


@pytest.mark.parametrize("dot_product", [*DOT_PRODUCTS, GPU])
@pytest.mark.parametrize(
    ("dtype", "multiplier", "stride"), [("uint8", 1, 1), ("int8", 1, 2), ("uint8", 2, 1)]
)
def test_channels_by_themselves_are_multiplied_as_bytes(
    tmp_path: Path, dtype: str, dot_product: str, multiplier: int, stride: int
) -> None:
    model = models.depthwise(tmp_path, dtype, multiplier=multiplier, stride=stride)
    result = check(model, dot_product)
    assert in_bytes(result)
    single = {array.dtype.name for array in result.parameters if array.shape[:2] == (3, 3)}
    if dot_product in ("u8s8", "s8s8") and multiplier == 1:
        # Four rows of the image in each lane: panels, rows of a band, groups, taps across, lanes, bytes.
        [packed] = [array for array in result.parameters if array.ndim == 6]
        assert not single and packed.dtype == np.int8 and packed.shape[3:] == (3, packed.shape[4], 4)
        return
    assert single == {{"u8s8": "float32", "s16s16": "float32", GPU: "int8"}.get(dot_product, "int16")}


def test_sums_that_single_precision_might_round_are_not_added_up_in_it(tmp_path: Path) -> None:
    exact = check(models.depthwise(tmp_path, channels=16, kernel=(1, 29)), "u8s8")
    assert in_bytes(exact)
    # 23 times 23 taps of bytes may be above 2^24.
    large = check(models.depthwise(tmp_path, channels=16, kernel=(23, 23)), "u8s8", 0.05)
    assert not in_bytes(large)
    whole = check(models.depthwise(tmp_path, channels=16, kernel=(23, 23)), "s8s8")
    assert in_bytes(whole)


@pytest.mark.parametrize("dot_product", [*DOT_PRODUCTS, GPU])
@pytest.mark.parametrize(("dtype", "made", "stride"), [("uint8", 12, 1), ("int8", 8, 2)])
def test_groups_of_channels_are_multiplied_as_bytes(
    tmp_path: Path, dtype: str, dot_product: str, made: int, stride: int
) -> None:
    result = check(models.grouped(tmp_path, dtype, made=made, stride=stride), dot_product)
    name = "dot_grouped_conv" if dot_product else "grouped_conv_add_cast"
    assert any(name in function for function in functions(result))


def test_groups_that_no_instruction_divides_stay_in_floats(tmp_path: Path) -> None:
    model = models.grouped(tmp_path, depth=6)
    assert not any("grouped_conv_add_cast" in name for name in functions(check(model, "u8s8", 0.05)))
    assert any("dot_grouped_conv" in name for name in functions(check(model, "s16s16")))
    # Tensor cores take them widened, and channels are not filled up in every group.
    widened = check(model, GPU, 0.05)
    assert any("grouped_conv_add_cast" in name for name in functions(widened))
    assert not any("dot_grouped_conv" in name for name in functions(widened))
    uneven = models.grouped(tmp_path, made=6)
    assert not any("grouped_conv_add_cast" in name for name in functions(check(uneven, "u8s8", 0.05)))


# Depthwise convolutions by dot products are of the rule `lane_dots`, which has tests of its own.
@seeds(4)
@pytest.mark.parametrize(
    ("kind", "dot_product"), [("depthwise", ""), ("grouped", "u8s8"), ("grouped", "s8s8")]
)
def test_random_programs_of_groups_compute_the_same_bytes(
    tmp_path: Path, kind: str, dot_product: str, seed: int
) -> None:
    model = models.depthwise(tmp_path, channels=48) if kind == "depthwise" else models.grouped(tmp_path)
    on = board_with(dot_product, LANES if dot_product == "u8s8" else 4)
    lowered = lower(model, on)
    (task,) = (one for one in lowered.tasks if f"{kind}_conv" in one.name)
    space = space_for(task, on.hardware, 1)
    values = space.sample(random.Random(seed))
    if "intrinsic" in values:
        # Plain code is for any processor that a test runs on.
        values["intrinsic"] = PLAIN
    made = scheduled_function(space.apply(space.candidate(values, "test")))
    changed = {
        name: made.with_attr("global_symbol", task.name) if name.name_hint == task.name else function
        for name, function in lowered.module.functions.items()
    }
    program = replace(lowered, module=tvm.IRModule(changed))
    results = run_lowered_cases(program, [case.inputs for case in model.golden])
    for case, (found,) in zip(model.golden, results, strict=True):
        assert (found == case.outputs[0]).all()


@pytest.mark.parametrize(("dtype", "dot_product"), [("uint8", "s8s8"), ("int8", "u8s8")])
def test_bytes_are_quantised_to_the_sign_of_a_product_behind_a_reshape(
    tmp_path: Path, dtype: str, dot_product: str
) -> None:
    """A 1x1 convolution is a product of matrices: its result has another shape before the next one."""
    found = check(models.separable(tmp_path, dtype), dot_product)
    # The input alone, which is transposed behind its quantisation, gets the other sign in a pass of its own.
    passes = [name for name in functions(found) if "bitwise_xor" in name]
    assert passes == ["fused_transpose_cast_bitwise_xor"]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_maxima_are_those_of_the_bytes(tmp_path: Path, dtype: str) -> None:
    result = check(models.pooled(tmp_path, dtype), "u8s8" if dtype == "uint8" else "s8s8", 0.05)
    (task,) = (one for one in result.tasks if "pool" in one.name)
    [maximum] = [one for one in analyse(task.function).stages if one.name == "max"]
    assert maximum.write.type.name == dtype
    # The input is quantised, and the product; bytes of the same scale are not quantised once more.
    quantised = sum(name.replace("dequantize", "").count("quantize") for name in functions(result))
    assert quantised == 2


@pytest.mark.parametrize(("zero", "less"), [(0, 0), (113, 113), (-128, 5), (7, -128)])
def test_a_quantised_number_is_a_float_again_without_being_narrowed(zero: int, less: int) -> None:
    dtype = "uint8" if zero >= 0 else "int8"
    x = te.placeholder((2001,), "float32", name="x")

    def difference(i: Any) -> Any:
        scale, point = tirx.const(1.0, "float32"), tirx.const(zero, "int32")
        byte = quantized((x[i], scale, point), {}, dtype)
        return float_difference(byte, tirx.const(less, "int32"))

    made = te.compute((2001,), difference, name="y")
    function = te.create_prim_func([x, made])
    assert f'"{dtype}"' not in function.script()
    data = np.linspace(-300.0, 300.0, 2001, dtype="float32")
    found = tvm.runtime.tensor(np.zeros(2001, "float32"))
    tvm.compile(function, target="llvm")(tvm.runtime.tensor(data), found)
    limits = np.iinfo(dtype)
    wanted = np.clip(np.rint(data) + zero, limits.min, limits.max) - less
    assert (found.numpy() == wanted).all()


@pytest.mark.parametrize("weights", [("int8", 0), ("uint8", 128), ("uint8", 7)])
@pytest.mark.parametrize("dot_product", DOT_PRODUCTS)
def test_products_quantised_at_run_time(tmp_path: Path, weights: tuple[str, int], dot_product: str) -> None:
    result = check(models.dynamic(tmp_path, *weights), dot_product, 1e-4)
    assert any("dense" in name for name in functions(result))
    # Weights that no signed byte holds are moved, and the rows are summed up.
    assert any("sum" in name for name in functions(result)) == (weights[1] == 7)


def test_a_product_of_two_activations_stays_in_fp32(tmp_path: Path) -> None:
    node, constants = models.node, models.activations("uint8")
    nodes = [
        *models.pair("x", "xd", "xs", "xz"),
        node("Transpose", ["xd"], ["t"], perm=[1, 0]),
        node("MatMul", ["xd", "t"], ["m"]),
        *models.pair("m", "y", "ys", "yz"),
    ]
    result = check(models.model(tmp_path, nodes, (6, 20), (6, 6), constants), "u8s8", 0.05)
    assert [found for name, found in products(result).items()] == ["float32"]


def test_dequantised_weights_of_other_operations_are_folded(tmp_path: Path) -> None:
    node = models.node
    constants = {"w": models.draw().integers(-127, 128, (4, 20)).astype("int8"), "s": np.float32(0.1)}
    constants["z"] = np.int8(4)
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["d"]),
        node("Add", ["x", "d"], ["a"]),
        node("Transpose", ["d"], ["t"], perm=[1, 0]),
        node("MatMul", ["a", "t"], ["y"]),
    ]
    result = check(models.model(tmp_path, nodes, (4, 20), (4, 4), constants), "u8s8", 1e-3)
    assert sorted(functions(result)) == ["fused_add", "fused_packed_dense"]
    assert {array.dtype.name for array in result.parameters} == {"float32"}


def test_how_far_the_original_runtime_parts_from_itself_is_known(tmp_path: Path) -> None:
    """As written it multiplies dequantised numbers; rewritten it adds up integers and rounds once."""
    result = models.convolution(tmp_path, "uint8", channels=32)
    spreads = [case.spread for case in result.golden]
    assert max(spreads) < 0.2
    path = tmp_path / "quantised.onnx"
    written = run_reference("onnxruntime", path, [case.inputs for case in result.golden], unoptimised=True)
    for case, (outputs,), spread in zip(result.golden, written, spreads, strict=True):
        distance = np.abs(outputs - case.outputs[0]).max() / np.abs(case.outputs[0]).max()
        # Inputs that are moved by roundings may move an output that lies between two steps to the other one.
        step = np.diff(np.unique(outputs)).min() / np.abs(case.outputs[0]).max()
        assert spread >= distance and pytest.approx(spread, rel=1e-4) in (float(distance), float(step))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_shuffle_between_equal_pairs_goes_into_the_weights_behind_it(tmp_path: Path, dtype: str) -> None:
    names = functions(check(models.shuffled(tmp_path, dtype), "u8s8"))
    # The only movement is that of the model's input, to channels last.
    assert sum("transpose" in name and "dot" not in name for name in names) == 1


def test_a_shuffle_that_changes_the_scale_is_computed_unoptimised(tmp_path: Path) -> None:
    names = functions(check(models.shuffled(tmp_path, other_scale=True), "u8s8"))
    assert any("quantize_dequantize_quanti" in name for name in names)


@pytest.mark.parametrize("is_other", ["factor", "scale", "range"])
def test_bytes_by_scales_of_the_model_stay_where_others_are_left_out(is_other: str) -> None:
    """Numbers come back as they were if both scales are those of the rows, and not otherwise."""

    def build(builder: relax.BlockBuilder, x: relax.Var, given: relax.Var) -> relax.Expr:
        def emit(value: relax.Expr) -> relax.Expr:
            return builder.emit(value)

        size = given if is_other == "range" else emit(relax.op.max(relax.op.abs(x), 1))
        largest = emit(relax.op.maximum(size, relax.const(1e-35, "float32")))
        factor = (
            given if is_other == "factor" else emit(relax.op.divide(relax.const(127.0, "float32"), largest))
        )
        scale = (
            given
            if is_other == "scale"
            else emit(relax.op.multiply(largest, relax.const(1 / 127, "float32")))
        )
        scaled = emit(relax.op.multiply(x, relax.op.reshape(factor, (3, 1))))
        one, zero = relax.const(1.0, "float32"), relax.const(0, "int8")
        whole = emit(relax.op.quantize(scaled, one, zero, axis=0, out_dtype="int8"))
        zeros = relax.const(np.zeros(3, np.int8), "int8")
        return relax.op.dequantize(whole, scale, zeros, axis=0)

    x = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    given = np.array([0.5, 1.0, 20.0], np.float32)
    largest = given if is_other == "range" else np.abs(x).max(1)
    factor = given if is_other == "factor" else 127 / largest
    scale = given if is_other == "scale" else largest / 127
    wanted = np.clip(np.rint(x * factor[:, None]), -128, 127) * scale[:, None]
    model = lower(imported(relax_module(build, [x, given])), board_with(""))
    [found] = run_lowered_cases(model, [[x, given]])[0]
    assert np.allclose(found, wanted, rtol=1e-5) and not np.allclose(found, x, rtol=0.1)
