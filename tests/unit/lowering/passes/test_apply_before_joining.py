"""Elementwise operations behind a concatenation become part of the functions before it."""

from __future__ import annotations

from tvm import relax

from tests.unit.lowering.harness import check, functions, normal, weight

op = relax.op


def _fire(bb, x, axis: int = 1):
    """A 1x1 and a 3x3 convolution of one tensor, joined."""
    narrow = bb.emit(op.nn.conv2d(x, weight(8, 4, 1, 1)))
    wide = bb.emit(op.nn.conv2d(x, weight(8, 4, 3, 3), padding=(1, 1)))
    return bb.emit(op.concat([narrow, wide], axis))


def _names(build) -> list[str]:
    return functions(check(build, [normal(1, 4, 6, 6)]))


def test_an_activation_is_computed_where_each_part_is_made() -> None:
    names = _names(lambda bb, x: op.nn.relu(_fire(bb, x)))
    assert "fused_relu" not in names
    assert sum(name.endswith("_relu") for name in names) == 2


def test_scales_and_shifts_by_channel_go_into_the_weights_of_their_part() -> None:
    def build(bb, x):
        scaled = bb.emit(op.multiply(_fire(bb, x), op.reshape(weight(16), (1, 16, 1, 1))))
        return op.nn.relu(bb.emit(op.add(scaled, op.reshape(weight(16), (1, 16, 1, 1)))))

    assert not any("multiply" in name for name in _names(build))


def test_constants_are_cut_along_other_dimensions_too() -> None:
    def build(bb, x):
        return op.add(_fire(bb, x, axis=3), relax.const(normal(12)))

    assert "fused_add" not in _names(build)


def test_a_concatenation_that_others_read_stays_before_what_follows_it() -> None:
    def build(bb, x):
        joined = _fire(bb, x)
        return op.add(bb.emit(op.nn.relu(joined)), bb.emit(op.mean(joined, [2, 3], True)))

    assert sum(name.endswith("_relu") for name in _names(build)) == 0


def test_what_reads_two_tensors_stays_behind() -> None:
    assert any("add" in name for name in _names(lambda bb, x: op.add(_fire(bb, x), _fire(bb, x))))
