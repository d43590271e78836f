"""No movement is left at run time that the model's own interface does not need."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from host.lowering.graph import reshape_groups
from host.lowering.passes.sink_reshapes import broadcast_view
from tests.unit.lowering.harness import calls, check, functions, lowered, normal, weight

op = relax.op


def conv(bb, x, channels_out: int, channels_in: int, size: int = 3, **attrs):
    return bb.emit(op.nn.conv2d(x, weight(channels_out, channels_in, size, size), **attrs))


def movements(model) -> list[str]:
    """Functions that have a transpose somewhere."""
    return [name for name in functions(model) if "transpose" in name]


def views(model) -> int:
    """Reshapes in `main`."""
    count = 0

    def visit(expression) -> None:
        nonlocal count
        if isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op):
            count += expression.op.name == "relax.reshape"

    relax.analysis.post_order_visit(model.module["main"].body, visit)
    return count


def test_a_convolution_net_transposes_its_input_once() -> None:
    def build(bb, x):
        x = conv(bb, x, 8, 3, padding=1)
        x = bb.emit(op.minimum(bb.emit(op.maximum(x, relax.const(0.0))), relax.const(6.0)))
        y = conv(bb, x, 8, 1, padding=1, groups=8)
        y = bb.emit(op.nn.max_pool2d(y, (2, 2), (2, 2)))
        z = bb.emit(op.nn.avg_pool2d(x, (2, 2), (2, 2)))
        both = bb.emit(op.concat([y, z], axis=1))
        both = bb.emit(op.nn.pad(both, [0, 0, 1, 1, 0, 0, 0, 0]))
        both = conv(bb, both, 6, 18, 1)
        squeezed = bb.emit(op.mean(both, [2, 3], True))
        gate = bb.emit(op.sigmoid(conv(bb, squeezed, 6, 6, 1)))
        both = bb.emit(op.multiply(both, gate))
        pooled = bb.emit(op.mean(both, [2, 3]))
        return op.matmul(pooled, weight(6, 5))

    model = check(build, [normal(1, 3, 8, 8)])
    assert movements(model) == ["fused_transpose_packed_conv_clip"]


def test_permutes_around_a_norm_cancel() -> None:
    """A ConvNeXt block: depthwise convolution, norm and products in channels-last, residual in NCHW."""

    def build(bb, x):
        x = conv(bb, x, 8, 3, 4, strides=4)
        y = bb.emit(op.permute_dims(conv(bb, x, 8, 1, 7, padding=3, groups=8), [0, 2, 3, 1]))
        y = bb.emit(op.nn.layer_norm(y, weight(8), weight(8), axes=[-1]))
        y = bb.emit(op.nn.gelu(bb.emit(op.matmul(y, weight(8, 32)))))
        y = bb.emit(op.multiply(bb.emit(op.matmul(y, weight(32, 8))), weight(8, seed=5)))
        x = bb.emit(op.add(x, bb.emit(op.permute_dims(y, [0, 3, 1, 2]))))
        return op.mean(x, [2, 3])

    model = check(build, [normal(1, 3, 16, 16)])
    assert movements(model) == ["fused_transpose_packed_conv"]
    assert calls(model) == 6


def normalised_as_onnx(bb, x, groups: int):
    """GroupNormalization as it is exported: an instance norm of groups, then scale and shift of channels."""
    rows = bb.emit(op.reshape(x, (x.ty.shape[0], groups, -1)))
    mean, variance = bb.emit(op.mean(rows, [2], True)), bb.emit(op.variance(rows, [2], True))
    root = bb.emit(op.sqrt(bb.emit(op.add(variance, relax.const(1e-5)))))
    rows = bb.emit(op.divide(bb.emit(op.subtract(rows, mean)), root))
    scaled = bb.emit(op.multiply(bb.emit(op.reshape(rows, x.ty.shape)), weight(8, 1, 1)))
    return bb.emit(op.add(scaled, weight(8, 1, 1, seed=4)))


def normalised(bb, x, groups: int):
    return bb.emit(op.nn.group_norm(x, weight(8), weight(8, seed=4), groups, 1, [2, 3]))


@pytest.mark.parametrize("norm", [normalised, normalised_as_onnx])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_norms_of_groups_of_channels_need_no_transpose(norm, groups: int) -> None:
    def build(bb, x):
        x = bb.emit(op.nn.relu(norm(bb, conv(bb, x, 8, 3, padding=1), groups)))
        return op.mean(conv(bb, x, 8, 8, padding=1), [2, 3])

    for batch in (1, 2):
        model = check(build, [normal(batch, 3, 8, 6)])
        assert movements(model) == ["fused_transpose_packed_conv"]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders_of_own_elements_keep_the_layout_of_convolutions(mode: str) -> None:
    """As in image restoration and style transfer, where norms follow that have nothing to scale yet."""
    ones, zeros = relax.const(np.ones(8, "float32")), relax.const(np.zeros(8, "float32"))

    def build(bb, x):
        x = conv(bb, bb.emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2], pad_mode=mode)), 8, 3)
        for groups in (8, 2):
            x = bb.emit(op.nn.silu(bb.emit(op.nn.group_norm(x, ones, zeros, groups, 1, [2, 3]))))
            x = conv(bb, bb.emit(op.nn.pad(x, [0, 0, 0, 0, 3, 2, 1, 0], pad_mode=mode)), 8, 8)
        return op.mean(x, [2, 3])

    model = check(build, [normal(2, 3, 8, 9)])
    assert sum(task.weight for task in model.tasks if "transpose" in task.name) == 1


def test_patches_of_a_vision_transformer_need_no_transpose() -> None:
    def build(bb, x):
        x = conv(bb, x, 8, 3, 4, strides=4)
        x = bb.emit(op.permute_dims(bb.emit(op.reshape(x, (1, 8, 16))), [0, 2, 1]))
        return op.matmul(x, weight(8, 5))

    assert movements(check(build, [normal(1, 3, 16, 16)])) == ["fused_transpose_packed_conv"]


def test_channels_last_models_move_nothing() -> None:
    def build(bb, x):
        y = bb.emit(op.nn.conv2d(x, weight(3, 3, 4, 8), data_layout="NHWC", kernel_layout="HWIO"))
        return op.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC")

    assert movements(check(build, [normal(1, 9, 9, 4)])) == []


def test_an_input_and_an_output_in_channels_first_are_the_only_transposes() -> None:
    model = check(lambda bb, x: op.nn.relu(conv(bb, x, 8, 4, padding=1)), [normal(1, 4, 6, 6)])
    assert functions(model) == ["fused_transpose_packed_conv_relu_transpose"]


@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions_and_slices_of_transposed_tensors(keepdims: bool) -> None:
    def build(bb, x):
        y = bb.emit(op.permute_dims(bb.emit(op.exp(x)), [2, 0, 1]))
        y = bb.emit(op.strided_slice(y, [0, 2], [1, 0], [4, 4], [1, 2]))
        y = bb.emit(op.nn.pad(y, [1, 0, 0, 0, 0, 2], pad_value=1.5))
        return op.sum(y, [1], keepdims)

    check(build, [normal(2, 5, 6)])


def test_operands_of_different_orders() -> None:
    def build(bb, x, y):
        a = bb.emit(op.permute_dims(x, [1, 0, 2]))
        b = bb.emit(op.permute_dims(y, [2, 1, 0]))
        c = bb.emit(op.add(bb.emit(op.multiply(a, b)), weight(3, 1)))
        return op.nn.softmax(c, 1)

    check(build, [normal(3, 4, 5), normal(5, 3, 4)])


def test_products_are_fused_through_reshapes() -> None:
    """torch.export flattens before each linear layer and unflattens behind it."""

    def linear(bb, x, columns: int, seed: int):
        rows = bb.emit(op.reshape(x, (6, 8)))
        y = bb.emit(op.add(bb.emit(op.matmul(rows, weight(8, columns, seed=seed))), weight(columns)))
        return bb.emit(op.reshape(y, (2, 3, columns)))

    def build(bb, x):
        y = bb.emit(op.nn.gelu(linear(bb, x, 8, 1)))
        y = bb.emit(op.add(linear(bb, y, 8, 2), x))
        y = bb.emit(op.nn.layer_norm(y, weight(8), weight(8), axes=[-1]))
        return op.multiply(y, weight(2, 3, 1, seed=7))

    model = check(build, [normal(2, 3, 8)])
    assert functions(model) == [
        "fused_packed_dense_add_gelu",
        "fused_packed_dense_add_add",
        "fused_layer_norm_multiply_add_multiply",
    ]


def test_reshapes_are_views() -> None:
    model = check(lambda bb, x: op.expand_dims(bb.emit(op.reshape(x, (6, 4))), 0), [normal(2, 3, 4)])
    assert calls(model) == 0
    assert views(model) == 1


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((6, 4), (2, 3, 4), [([0], [0, 1]), ([1], [2])]),
        ((2, 6), (4, 3), [([0, 1], [0, 1])]),
        ((4,), (4, 1, 1), [([0], [0, 1, 2])]),
        ((), (1,), [([], [0])]),
    ],
)
def test_groups_of_a_reshape(old, new, groups) -> None:
    assert reshape_groups(old, new) == groups


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((8,), (1, 8)),
        ((1, 1, 8), (1, 8)),
        ((2, 3, 1), (6, 1)),
        ((2, 1, 8), None),
        ((), (1, 1)),
        ((2, 3, 8), (6, 8)),
    ],
)
def test_broadcasting_to_another_view(shape, wanted) -> None:
    assert broadcast_view(shape, (2, 3, 8), (6, 8)) == wanted


def test_an_expanded_divisor_behind_a_convolution_is_not_written_out() -> None:
    """As exporters write the normalisation of descriptors: the norm, an Expand, a division."""

    def build(bb, x):
        y = conv(bb, x, 12, 8, 1)
        norm = bb.emit(op.sqrt(bb.emit(op.sum(bb.emit(op.multiply(y, y)), [1], keepdims=True))))
        return op.divide(y, bb.emit(op.broadcast_to(norm, (1, 12, 5, 6))))

    found = functions(check(build, [normal(1, 8, 5, 6)]))
    assert not any("broadcast" in name for name in found), found


def test_what_an_operation_alone_does_not_spread_is_spread() -> None:
    def build(bb, x, y):
        wide = bb.emit(op.broadcast_to(x, (3, 4, 5)))
        return op.add(bb.emit(op.tanh(wide)), bb.emit(op.add(wide, y)))

    check(build, [normal(4, 1), normal(4, 1, seed=2)])


def test_transposed_constants_are_stored_transposed() -> None:
    def build(bb, x):
        table = bb.emit(op.permute_dims(weight(5, 3, 4), [2, 0, 1]))
        return op.add(x, bb.emit(op.reshape(table, (1, 4, 15))))

    model = check(build, [normal(2, 4, 15)])
    assert functions(model) == ["fused_add"]
    assert [array.shape for array in model.parameters] in ([(4, 15)], [(1, 4, 15)])
    assert np.asarray(model.parameters[0]).flags.c_contiguous


def test_time_and_code_grow_with_the_graph_and_not_with_its_paths() -> None:
    """Each step reads its input twice: 2^60 paths, and as many terms in one function."""

    def build(bb, x):
        for _ in range(60):
            x = bb.emit(op.reshape(x, (3, 8)))
            x = bb.emit(op.add(bb.emit(op.nn.relu(x)), bb.emit(op.multiply(x, relax.const(0.5)))))
            x = bb.emit(op.reshape(x, (2, 3, 4)))
        return x

    values = [normal(2, 3, 4)]
    # Six or seven doublings to a function.
    assert 8 <= calls(lowered(build, values)) <= 12
    check(build, values)
