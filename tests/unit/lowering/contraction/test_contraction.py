"""Matrix products and convolutions: values, packing, block names, fusion."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from host.lowering.passes.pack_weights import lanes_for
from tests.unit.lowering.harness import blocks, board, calls, check, functions, normal, weight

op = relax.op


def parameter_shapes(model) -> list[tuple[int, ...]]:
    return [array.shape for array in model.parameters]


@pytest.mark.parametrize(
    ("channels", "lanes", "halves", "width"),
    [
        (64, 16, True, 16),
        (24, 16, True, 8),
        (24, 16, False, 16),
        (20, 16, True, 16),
        (52, 16, True, 16),
        (1000, 16, True, 16),
        (10, 16, True, 16),
        (8, 16, True, 8),
        (3, 16, True, 4),
        (7, 8, False, 8),
        (12, 8, False, 8),
        (6, 4, False, 4),
    ],
)
def test_lanes_waste_no_more_of_a_vector_than_a_shorter_one_costs(
    channels: int, lanes: int, halves: bool, width: int
) -> None:
    assert lanes_for(channels, lanes, halves) == width


@pytest.mark.parametrize("columns", [1000, 24, 10, 7, 1])
@pytest.mark.parametrize("lanes", [16, 4])
def test_dense_of_any_width(columns: int, lanes: int) -> None:
    def build(bb, x):
        return op.nn.relu(bb.emit(op.add(bb.emit(op.matmul(x, weight(19, columns))), weight(columns))))

    model = check(build, [normal(5, 19)], lanes)
    assert functions(model) == ["fused_packed_dense_add_relu"]
    width = lanes_for(columns, lanes, board(lanes).hardware.halves_vectors)
    assert parameter_shapes(model)[0] == (-(-columns // width), 19, width)
    assert "matmul" in blocks(model)


def test_dense_of_three_dimensions_is_one_matrix() -> None:
    model = check(lambda bb, x: op.matmul(x, weight(32, 48)), [normal(1, 197, 32)])
    assert [int(d) for d in model.tasks[0].function.params[0].ty.shape] == [197, 32]
    assert calls(model) == 1


def test_dense_with_a_transposed_weight_moves_nothing_at_run_time() -> None:
    def build(bb, x):
        return op.matmul(x, bb.emit(op.permute_dims(weight(48, 32))))

    assert functions(check(build, [normal(3, 32)])) == ["fused_packed_dense"]


def test_vector_times_matrix() -> None:
    check(lambda bb, x: op.matmul(x, weight(6, 9)), [normal(6)])


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3, 5, 7), (2, 3, 7, 4)), ((3, 5, 7), (7, 4)), ((4, 1, 5, 7), (3, 7, 2))]
)
def test_matmul_of_activations(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    model = check(lambda bb, x, y: op.matmul(x, y), [normal(*left), normal(*right)])
    assert blocks(model) == {"matmul"}


CONVOLUTIONS = {
    "plain": dict(x=(1, 8, 9, 9), w=(16, 8, 3, 3)),
    "strided": dict(x=(2, 3, 11, 10), w=(24, 3, 3, 3), strides=2, padding=1),
    "asymmetric": dict(x=(1, 5, 8, 7), w=(10, 5, 2, 3), padding=(0, 1, 1, 2)),
    "dilated": dict(x=(1, 4, 12, 12), w=(7, 4, 3, 3), dilation=2, padding=2),
    "point": dict(x=(1, 6, 5, 5), w=(20, 6, 1, 1)),
    "depthwise": dict(x=(1, 10, 8, 8), w=(10, 1, 3, 3), groups=10, padding=1),
    "depthwise, strided": dict(x=(1, 12, 9, 9), w=(12, 1, 5, 5), groups=12, padding=2, strides=2),
    "multiplier": dict(x=(1, 4, 6, 6), w=(12, 1, 3, 3), groups=4, padding=1),
    "grouped": dict(x=(1, 8, 7, 7), w=(32, 4, 3, 3), groups=2, padding=1),
    "grouped, odd": dict(x=(1, 6, 7, 7), w=(21, 2, 3, 3), groups=3),
}


# The block that computes a convolution, by the first word of its name; of others, "conv2d".
_BLOCKS = {
    "grouped": "grouped_conv2d",
    "depthwise": "depthwise_conv2d",
    "multiplier": "depthwise_conv2d",
    "point": "matmul",
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("lanes", [16, 8])
def test_convolution(name: str, lanes: int) -> None:
    case = dict(CONVOLUTIONS[name])
    x, w = case.pop("x"), case.pop("w")

    def build(bb, data):
        y = bb.emit(op.nn.conv2d(data, weight(*w), **case))
        y = bb.emit(op.add(y, op.reshape(weight(w[0]), (1, w[0], 1, 1))))
        return op.clip(y, 0.0, 6.0)

    model = check(build, [normal(*x)], lanes)
    assert _BLOCKS.get(name.split(",")[0], "conv2d") in blocks(model)
    padded = any(np.atleast_1d(case.get("padding", 0)))
    assert ("pad_temp" in blocks(model)) == (padded or "fused_transpose_" in functions(model)[0])
    # The input's transpose is part of the convolution; the output's is the only other movement.
    assert calls(model) <= 3


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("lanes", [16, 8])
def test_convolution_with_a_weight_that_the_model_computes(name: str, lanes: int) -> None:
    case = dict(CONVOLUTIONS[name])
    x, w = case.pop("x"), case.pop("w")

    def build(bb, data, kernel):
        return op.nn.relu(bb.emit(op.nn.conv2d(data, bb.emit(op.tanh(kernel)), **case)))

    model = check(build, [normal(*x), normal(*w)], lanes)
    assert _BLOCKS.get(name.split(",")[0], "conv2d") in blocks(model)


def test_a_weight_that_two_convolutions_compute_with_is_packed_once() -> None:
    def build(bb, x, y, kernel):
        kernel = bb.emit(op.tanh(kernel))
        made = [bb.emit(op.nn.conv2d(image, kernel)) for image in (x, y)]
        return op.add(*made)

    model = check(build, [normal(1, 8, 9, 9), normal(1, 8, 9, 9, seed=2), normal(32, 8, 3, 3)])
    # Whether what computes the weight packs it, or a kernel of its own.
    packing = [task for task in model.tasks if "conv" not in task.name and "transpose" in task.name]
    made = [[int(size) for size in task.function.params[-1].ty.shape if int(size) > 1] for task in packing]
    assert made.count([2, 3, 3, 8, 16]) == 1


def test_convolution_weights_are_packed_by_blocks_of_channels() -> None:
    model = check(lambda bb, x: op.nn.conv2d(x, weight(24, 8, 3, 5)), [normal(1, 8, 9, 9)])
    assert parameter_shapes(model) == [(2, 3, 5, 8, 16)]
    grouped = check(lambda bb, x: op.nn.conv2d(x, weight(64, 4, 3, 3), groups=2), [normal(1, 8, 9, 9)])
    assert parameter_shapes(grouped) == [(2, 2, 3, 3, 4, 16)]


@pytest.mark.parametrize("layout", [("NHWC", "HWIO"), ("NHWC", "OHWI"), ("NCHW", "OIHW")])
def test_convolution_layouts(layout: tuple[str, str]) -> None:
    data_layout, kernel_layout = layout
    sizes = {"N": 1, "C": 6, "H": 7, "W": 8}
    kernel = {"O": 9, "I": 6, "H": 3, "W": 2}
    x = normal(*(sizes[letter] for letter in data_layout))
    w = weight(*(kernel[letter] for letter in kernel_layout))

    def build(bb, data):
        return op.nn.conv2d(data, w, data_layout=data_layout, kernel_layout=kernel_layout)

    check(build, [x])


def test_convolutions_of_one_and_three_dimensions() -> None:
    check(
        lambda bb, x: op.nn.conv1d(x, weight(9, 4, 3), padding=1, strides=2, dilation=2), [normal(1, 4, 13)]
    )
    model = check(lambda bb, x: op.nn.conv3d(x, weight(5, 2, 2, 3, 3), padding=1), [normal(1, 2, 4, 5, 6)])
    assert "conv3d" in blocks(model)


TRANSPOSED = {
    "generator": dict(x=(1, 6, 5, 5), w=(6, 8, 4, 4), strides=2, padding=1),
    "from a point": dict(x=(2, 6, 1, 1), w=(6, 8, 4, 4)),
    "odd kernel": dict(x=(1, 3, 5, 6), w=(3, 4, 3, 3), strides=2, padding=1, output_padding=1),
    "kernel smaller than stride": dict(x=(1, 3, 4, 4), w=(3, 4, 2, 2), strides=3),
    "stride 1": dict(x=(1, 3, 4, 4), w=(3, 4, 3, 3), padding=1),
    "uneven": dict(x=(1, 3, 4, 5), w=(3, 4, 5, 3), strides=(3, 2), padding=(1, 0, 2, 1)),
    "dilated": dict(x=(1, 3, 4, 4), w=(3, 4, 3, 3), strides=2, dilation=2, padding=1),
    "grouped": dict(x=(1, 4, 4, 4), w=(4, 3, 3, 3), strides=2, groups=2, padding=1),
    "cropped beyond the kernel": dict(x=(1, 3, 6, 6), w=(3, 4, 2, 2), padding=2),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name: str) -> None:
    case = dict(TRANSPOSED[name])
    x, w = case.pop("x"), case.pop("w")

    def build(bb, data):
        y = bb.emit(op.nn.conv2d_transpose(data, weight(*w), **case))
        channels = int(y.ty.shape[1])
        y = bb.emit(op.multiply(y, op.reshape(weight(channels, seed=4), (1, channels, 1, 1))))
        return op.nn.relu(y)

    check(build, [normal(*x)])


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution_with_a_weight_that_the_model_computes(name: str) -> None:
    case = dict(TRANSPOSED[name])
    x, w = case.pop("x"), case.pop("w")

    def build(bb, data, kernel):
        return op.nn.relu(bb.emit(op.nn.conv2d_transpose(data, bb.emit(op.tanh(kernel)), **case)))

    check(build, [normal(*x), normal(*w)])


@pytest.mark.parametrize("groups", [2, 8])
def test_a_transposed_convolution_in_groups_multiplies_no_zeros(groups: int) -> None:
    def build(bb, x):
        return op.nn.conv2d_transpose(x, weight(8, 32 // groups, 4, 4), strides=2, padding=1, groups=groups)

    model = check(build, [normal(1, 8, 6, 6)])
    products = sum(task.flops * task.weight for task in model.tasks if "conv" in task.name)
    # Each output position reads two positions of four along each dimension.
    assert products == 2.0 * (12 * 12) * 32 * (8 // groups) * (2 * 2)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(16, 8, 4), (4, 2, 1), (3, 3, 0), (6, 2, 2)])
def test_a_transposed_convolution_of_a_line_is_one_convolution(
    kernel: int, stride: int, padding: int
) -> None:
    def build(bb, x):
        made = bb.emit(op.nn.conv1d_transpose(x, weight(6, 5, kernel), strides=stride, padding=padding))
        return op.nn.relu(made)

    model = check(build, [normal(2, 6, 9)])
    assert sum(task.weight for task in model.tasks if "conv" in task.name) == 1


def test_a_transposed_convolution_that_enlarges_columns_alone_is_one_convolution() -> None:
    def build(bb, x):
        return op.nn.conv2d_transpose(x, weight(4, 5, 3, 4), strides=(1, 2), padding=1)

    model = check(build, [normal(1, 4, 6, 7)])
    assert sum(task.weight for task in model.tasks if "conv" in task.name) == 1


def test_residual_sum_and_activation_end_the_convolution() -> None:
    def build(bb, x):
        y = bb.emit(op.nn.relu(bb.emit(op.nn.conv2d(x, weight(8, 8, 3, 3), padding=1))))
        z = bb.emit(op.nn.conv2d(y, weight(8, 8, 3, 3, seed=2), padding=1))
        return op.nn.relu(bb.emit(op.add(z, y)))

    model = check(build, [normal(1, 8, 6, 6)])
    assert [task.name.count("conv") for task in model.tasks if "conv" in task.name] == [1, 1]
    assert any(name.startswith("fused_packed_conv_add_relu") for name in functions(model))


def test_work_of_a_convolution_counts_two_a_multiply_add() -> None:
    model = check(lambda bb, x: op.nn.conv2d(x, weight(16, 8, 3, 3)), [normal(1, 8, 9, 9)])
    work = [task.flops for task in model.tasks if "conv" in task.name]
    assert work == [2.0 * 7 * 7 * 16 * 8 * 3 * 3]


def test_queries_keys_and_values_of_one_product_are_three_products() -> None:
    def build(bb, x):
        rows = bb.emit(op.reshape(x, (6, 8)))
        y = bb.emit(op.add(bb.emit(op.matmul(rows, weight(8, 36))), weight(36)))
        parts = bb.emit(op.split(bb.emit(op.reshape(y, (1, 6, 36))), 3, axis=2))
        q, k, v = (bb.emit(relax.TupleGetItem(parts, i)) for i in range(3))
        return op.multiply(bb.emit(op.add(q, bb.emit(op.tanh(k)))), v)

    model = check(build, [normal(1, 6, 8)])
    assert not any("slice" in name for name in functions(model))
    assert sum(task.flops for task in model.tasks if "dense" in task.name) > 0


def test_a_product_that_is_also_read_whole_is_not_taken_apart() -> None:
    def build(bb, x):
        y = bb.emit(op.matmul(x, weight(8, 36)))
        part = bb.emit(op.strided_slice(y, [1], [0], [12]))
        return relax.Tuple([part, bb.emit(op.exp(y))])

    model = check(build, [normal(6, 8)])
    assert [name.count("dense") for name in functions(model)].count(1) == 1


@pytest.mark.parametrize("name", ["concat", "pad"])
def test_a_product_does_not_end_with_what_makes_further_elements(name: str) -> None:
    """A tile of the product would compute only those elements that come from it."""

    def build(bb, x, y):
        made = bb.emit(op.nn.relu(bb.emit(op.matmul(x, weight(19, 26)))))
        return op.concat([y, made], axis=1) if name == "concat" else op.nn.pad(made, [0, 0, 3, 3])

    model = check(build, [normal(5, 19), normal(5, 26)])
    assert functions(model) == ["fused_packed_dense_relu", f"fused_{name}"]


@pytest.mark.parametrize("leading", [(1,), (4,), (2, 3)])
def test_a_weight_that_a_whole_batch_shares_is_stored_and_packed_once(leading: tuple[int, ...]) -> None:
    shared = normal(19, 32)

    def build(bb, x):
        repeated = relax.const(np.broadcast_to(shared, (*leading, 19, 32)).copy())
        return op.nn.relu(bb.emit(op.matmul(x, repeated)))

    model = check(build, [normal(*leading, 5, 19)])
    assert functions(model) == ["fused_packed_dense_relu"]
    assert [array.size for array in model.parameters] == [shared.size]


def test_weights_of_a_batch_that_differ_stay_apart() -> None:
    different = normal(2, 19, 24)
    model = check(lambda bb, x: op.matmul(x, relax.const(different)), [normal(2, 5, 19)])
    assert functions(model) == ["fused_matmul"]
