"""Whole models: signatures, integer inputs, movement operators, tasks, random graphs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from host.errors import ImportFailed, LoweringError
from host.lowering import lower
from tests.unit.lowering.harness import (
    board,
    calls,
    check,
    functions,
    imported,
    lowered,
    normal,
    relax_module,
    run_lowered,
    weight,
)

op = relax.op


def test_inputs_keep_their_names_and_order_used_or_not() -> None:
    model = lowered(lambda bb, a, b, c: op.negative(c), [normal(2), normal(3), normal(4)])
    names = [parameter.name for parameter in model.module["main"].params]
    assert names[:3] == ["input0", "input1", "input2"]
    (found,) = run_lowered(model, [normal(2), normal(3), normal(4)])
    np.testing.assert_array_equal(found, -normal(4))


def test_outputs_may_be_inputs_constants_integers_and_repeated() -> None:
    def build(bb, x, i):
        y = bb.emit(op.add(i, relax.const(3, "int64")))
        return relax.Tuple([x, y, relax.const(normal(2, 2)), y, bb.emit(op.reshape(x, (6,)))])

    check(build, [normal(2, 3), np.arange(4)])


def test_a_single_output_in_a_tuple_stays_in_a_tuple() -> None:
    model = lowered(lambda bb, x: relax.Tuple([bb.emit(op.exp(x))]), [normal(3)])
    assert isinstance(model.module["main"].ret_ty, relax.TupleType)


def test_parameters_are_arguments_behind_the_inputs() -> None:
    model = lowered(lambda bb, x: op.add(bb.emit(op.matmul(x, weight(8, 16))), weight(16)), [normal(2, 8)])
    shapes = [tuple(int(d) for d in p.ty.shape) for p in model.module["main"].params]
    assert shapes == [(2, 8), *(array.shape for array in model.parameters)]
    assert "GenericConst" not in model.module.script(show_meta=False)


def test_embedding_and_masks() -> None:
    def build(bb, tokens, mask):
        x = bb.emit(op.take(weight(11, 8), tokens, axis=0))
        keep = bb.emit(op.astype(bb.emit(op.not_equal(mask, relax.const(0, "int64"))), "float32"))
        x = bb.emit(op.multiply(x, bb.emit(op.expand_dims(keep, -1))))
        return op.where(bb.emit(op.greater(x, relax.const(0.0))), x, relax.const(-1.0))

    tokens = np.array([[1, 10, 0], [4, 4, 9]])
    model = check(build, [tokens, np.array([[1, 1, 0], [1, 0, 1]])])
    assert calls(model) <= 2


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_of_any_axis(axis: int) -> None:
    check(lambda bb, x, i: op.take(x, i, axis=axis), [normal(4, 5, 6), np.array([[3, 0], [1, 2]])])


MOVEMENTS = {
    "concat": lambda bb, x, y: op.concat([x, y, x], axis=1),
    "concat last": lambda bb, x, y: op.concat([x, y], axis=-1),
    "stack": lambda bb, x, y: op.stack([x, y], axis=1),
    "split": lambda bb, x, y: op.split(x, 2, axis=1),
    "split uneven": lambda bb, x, y: op.split(x, [1, 4], axis=2),
    "slice": lambda bb, x, y: op.strided_slice(x, [2, 0], [-1, 0], [0, 2], [-2, 1]),
    "slice from the end": lambda bb, x, y: op.strided_slice(x, [1], [-3], [-1]),
    "flip": lambda bb, x, y: op.flip(x, 2),
    "pad": lambda bb, x, y: op.nn.pad(x, [0, 1, 2, 0, 1, 1], pad_value=-2.0),
    "reflect": lambda bb, x, y: op.nn.pad(x, [0, 0, 1, 1, 1, 2], pad_mode="reflect"),
    "tile": lambda bb, x, y: op.tile(x, [1, 2, 3]),
    "repeat": lambda bb, x, y: op.repeat(x, 2, 1),
    "broadcast": lambda bb, x, y: op.broadcast_to(bb.emit(op.reshape(x, (2, 1, 4, 6))), (2, 3, 4, 6)),
    "cumsum": lambda bb, x, y: op.cumsum(x, 1),
    "argmax": lambda bb, x, y: op.argmax(x, 2),
    "sort": lambda bb, x, y: op.sort(x, 1),
    "topk": lambda bb, x, y: op.topk(x, 3),
    "one_hot": lambda bb, x, y: op.one_hot(
        bb.emit(op.argmax(x, 2)), tvm.tirx.FloatImm("float32", 1.0), tvm.tirx.FloatImm("float32", 0.0), 6
    ),
    "triu": lambda bb, x, y: op.triu(x, 1),
    "einsum": lambda bb, x, y: op.einsum((x, y), "bij,bkj->bik"),
    "gather": lambda bb, x, y: op.gather_elements(x, bb.emit(op.argmax(y, 2, True)), 2),
    "instance norm": lambda bb, x, y: op.nn.instance_norm(x, weight(4), weight(4), 1, [2]),
    "group norm": lambda bb, x, y: op.nn.group_norm(x, weight(4), weight(4), 2, 1, [2]),
}


@pytest.mark.parametrize("name", MOVEMENTS)
def test_movement_and_operators_left_to_tvm(name: str) -> None:
    check(MOVEMENTS[name], [normal(2, 4, 6), normal(2, 4, 6, seed=2)])


UNARY = (
    "abs ceil floor round exp log sqrt rsqrt sin cos tan sinh cosh atan sigmoid tanh erf sign square negative"
)


@pytest.mark.parametrize("name", UNARY.split())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elementwise(name: str, dtype: str) -> None:
    x = (np.abs(normal(3, 7)) + 0.1 if name in ("log", "sqrt", "rsqrt") else 2 * normal(3, 7)).astype(dtype)
    check(lambda bb, v: getattr(op, name)(v), [x])


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu", "selu", "softplus", "leakyrelu"])
def test_activations(name: str) -> None:
    check(lambda bb, v: getattr(op.nn, name)(v), [4 * normal(3, 7)])


def test_prelu_and_integer_arithmetic() -> None:
    check(lambda bb, x: op.nn.prelu(x, weight(3), axis=1), [normal(2, 3, 4)])
    left, right = np.array([7, -7, 9, -9], "int32"), np.array([2, 2, -4, -4], "int32")
    for name in ("divide", "floor_divide", "mod", "floor_mod", "bitwise_xor", "maximum"):
        check(lambda bb, x, y, name=name: getattr(op, name)(x, y), [left, right])


def test_constant_parts_are_computed_once_and_for_all() -> None:
    def build(bb, x):
        mask = bb.emit(op.triu(bb.emit(op.ones((4, 4), "float32")), 1))
        bias = bb.emit(op.multiply(mask, relax.const(-1e9)))
        return op.add(x, bb.emit(op.reshape(bb.emit(op.exp(bias)), (1, 4, 4))))

    assert functions(check(build, [normal(2, 4, 4)]))[-1] == "fused_add"


def test_equal_functions_are_one_task_with_their_number_as_weight() -> None:
    def build(bb, x):
        for seed in range(3):
            x = bb.emit(op.nn.relu(bb.emit(op.matmul(x, weight(16, 16, seed=seed)))))
        return x

    model = lowered(build, [normal(4, 16)])
    assert [(task.weight, task.flops) for task in model.tasks] == [(3, 2 * 4 * 16 * 16 + 4 * 16)]


_HASH = """
import sys
import host.execution.without_torch
from tests.unit.lowering.harness import lowered, normal, weight
from tvm import relax
model = lowered(lambda bb, x: relax.op.nn.softmax(relax.op.matmul(x, weight(8, 8))), [normal(4, 8)])
print(" ".join(task.workload_hash for task in model.tasks))
"""


def test_workload_hashes_are_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _HASH],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop().split()) == 2


def test_a_model_without_module_says_why() -> None:
    model = dataclasses.replace(
        imported(relax_module(lambda bb, x: op.exp(x), [normal(2)])),
        module=None,
        reason="operator Foo has no conversion",
        operator="Foo",
    )
    with pytest.raises(ImportFailed, match="model: operator Foo") as caught:
        lower(model, board())
    assert caught.value.operator == "Foo"


def test_branches_are_refused_with_a_way_out() -> None:
    builder = relax.BlockBuilder()
    condition = relax.Var("condition", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", [condition, x]):
        result = builder.emit(relax.If(condition, relax.SeqExpr([], x), relax.SeqExpr([], x)))
        builder.emit_func_output(result)
    with pytest.raises(LoweringError, match="onnxruntime"):
        lower(imported(builder.get()), board())


def test_open_shapes_are_refused_with_the_option_that_pins_them() -> None:
    builder = relax.BlockBuilder()
    size = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((size, 2), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.exp(x)))
    with pytest.raises(LoweringError, match="--shape"):
        lower(imported(builder.get()), board())


STEP_NAMES = """relu exp add scale conv depthwise pool norm softmax transpose reshape dense mean
    residual gate slice"""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(STEP_NAMES.split()),
        st.integers(0, 7),
    ),
    min_size=2,
    max_size=9,
)


def grow(bb, x, steps):
    """A graph that applies steps to a tensor of four dimensions, keeping values small."""
    earlier = [x]
    for name, choice in steps:
        shape = [int(d) for d in x.ty.shape]
        n, c, h, w = shape
        if name in ("relu", "softmax"):
            x = op.nn.relu(x) if name == "relu" else op.nn.softmax(x, choice % 4)
        elif name == "exp":
            x = op.tanh(x)
        elif name == "add":
            x = op.add(x, weight(*[(c, 1, 1), (w,), (1,), (n, 1, h, 1)][choice % 4], seed=choice))
        elif name == "scale":
            x = op.multiply(x, weight(*[(c, 1, 1), (w,), (1,), (h, w)][choice % 4], seed=choice))
        elif name == "conv" and h >= 2 and w >= 2:
            x = op.nn.conv2d(x, weight(3 + choice, c, 2, 2, seed=choice), padding=choice % 2)
        elif name == "depthwise":
            x = op.nn.conv2d(x, weight(c, 1, 1, 1, seed=choice), groups=c)
        elif name == "pool" and h >= 2 and w >= 2:
            x = op.nn.avg_pool2d(x, (2, 2)) if choice % 2 else op.nn.max_pool2d(x, (2, 2))
        elif name == "norm":
            x = op.nn.layer_norm(x, weight(w), weight(w, seed=2), axes=[-1])
        elif name == "transpose":
            x = op.permute_dims(x, [[0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [0, 2, 1, 3]][choice % 4])
        elif name == "reshape":
            x = op.reshape(
                x, [(n, c, 1, h * w), (n, 1, c * h, w), (n, h, c, w), (n, c * h, 1, w)][choice % 4]
            )
        elif name == "dense":
            x = op.matmul(x, weight(w, 2 + choice, seed=choice))
        elif name == "mean":
            x = op.mean(x, [1 + choice % 3], True)
        elif name == "slice":
            x = op.strided_slice(x, [3], [0], [max(1, w - 1)])
        elif name in ("residual", "gate"):
            same = [value for value in earlier if [int(d) for d in value.ty.shape] == shape]
            other = same[choice % len(same)]
            x = op.add(x, other) if name == "residual" else op.multiply(bb.emit(op.sigmoid(x)), other)
        else:
            continue
        x = bb.emit(x)
        earlier.append(x)
    return relax.Tuple([x, earlier[len(earlier) // 2]])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(STEPS)
def test_random_graphs_keep_their_values(steps) -> None:
    check(lambda bb, x: grow(bb, x, steps), [normal(1, 3, 4, 5)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_quotients_of_constants_are_rounded_towards_zero(dtype: str) -> None:
    ends = np.iinfo(dtype)
    signed = -4 if ends.min < 0 else 1
    left, right = (
        one.reshape(-1).astype(dtype)
        for one in np.meshgrid([ends.min, ends.min + 1, 7, ends.max], [2, 3, ends.max, signed])
    )
    zeros = np.zeros(left.shape, dtype)
    sides = (relax.const(one, dtype) for one in (left, right))
    model = lowered(lambda bb, v: op.add(v, op.divide(*sides)), [zeros])
    (found,) = run_lowered(model, [zeros])
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    wanted = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
    np.testing.assert_array_equal(found, wanted)
