"""Functions over their own lengths: rounded parts of the model's."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from host.dynamic.kernels import kernel_over
from host.dynamic.model import witness_lengths
from host.dynamic.own_length import (
    has_length,
    over_own_length,
    own_length,
    rounds,
    takes_length,
    with_length,
)
from host.dynamic.request import Dimension
from host.errors import LoweringError
from host.model import DeviceProfile
from tests.unit.schedules import functions

LENGTHS = (37, 53, 107, 146)


def rows(n: int) -> tirx.PrimFunc:
    """A product whose rows are the pixels of an image of 8 rows, an eighth as wide."""
    return functions.dense(8 * own_length(n, 8), 32, 24, 8)


def image_mean(n: int) -> tirx.PrimFunc:
    width = own_length(n, 4)
    a = te.placeholder((7, width, 16), name="A")
    i, k = te.reduce_axis((0, 7), name="i"), te.reduce_axis((0, width), name="k")
    total = te.compute((16,), lambda j: te.sum(a[i, k, j], axis=(i, k)), name="total")
    factor = tirx.const(1.0 / (7 * width), "float32")
    return te.create_prim_func([a, te.compute((16,), lambda j: total[j] * factor, name="mean")])


def strided(n: int) -> tirx.PrimFunc:
    return functions.convolution(own_length(n, 2), 5, 16, 3, 2, lanes=8)


def test_rounded_parts_of_a_length_are_a_length_of_their_own() -> None:
    template, unit = over_own_length({n: rows(n) for n in LENGTHS}, "rows")
    assert unit == 8 and not rounds(template) and not has_length(template)
    board = functions.board("avx2")
    dimension = Dimension("n", own_length(33, 8), own_length(200, 8), {})
    made = kernel_over("rows", template, dimension, DeviceProfile("test", board, board.hardware, 1), 0)
    assert (made.source, made.rule) == ("gensor", "tiled"), made.reason
    assert takes_length(made.function) and with_length(made.function) is made.function
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    function, draw = tvm.compile(made.function, target=target)["rows"], np.random.default_rng(0)
    weights = draw.normal(size=(4, 24, 8)).astype(np.float32)
    for m in range(dimension.low, dimension.high + 1):
        a = draw.normal(size=(8 * m, 24)).astype(np.float32)
        out = tvm.runtime.tensor(np.full((8 * m, 32), np.nan, np.float32))
        function(m, tvm.runtime.tensor(a), tvm.runtime.tensor(weights), out)
        np.testing.assert_allclose(out.numpy(), functions.dense_numpy(a, weights), rtol=1e-4, atol=1e-4)


def test_a_mean_over_a_rounded_width_divides_by_it() -> None:
    template, unit = over_own_length({n: image_mean(n) for n in LENGTHS}, "mean")
    assert unit == 4 and has_length(template)
    for n in (4, 40, 41, 200):
        assert tvm_ffi.structural_equal(template.at(own_length(n, 4)), image_mean(n), map_free_vars=True)


def test_a_step_of_two_over_a_half_is_one_over_its_own_length() -> None:
    template, unit = over_own_length({n: strided(n) for n in LENGTHS}, "strided")
    assert unit == 2 and has_length(template) and rounds(template)
    for n in (39, 40, 41, 42):
        assert tvm_ffi.structural_equal(template.at(own_length(n, 2)), strided(n), map_free_vars=True)


def test_lengths_at_which_a_half_is_a_line_do_not_decide() -> None:
    # At odd lengths n is 2 m - 1.
    _, unit = over_own_length({n: functions.dense(n, 32, 8) for n in (37, 53, 107, 151)}, "dense")
    assert unit == 1
    with pytest.raises(LoweringError):
        over_own_length({n: image_mean(n * n) for n in (37, 53, 107, 151)}, "mean")


@pytest.mark.parametrize(("low", "high"), [(1, 64), (32, 160), (33, 75), (100, 3000), (1, 40)])
def test_lengths_that_a_model_is_lowered_at_show_how_halves_are_rounded(low: int, high: int) -> None:
    lengths = witness_lengths(Dimension("n", low, high, {}))
    assert list(lengths) == sorted(set(lengths)) and all(low <= n <= high for n in lengths)
    for unit in (1, 2, 4):
        assert len({own_length(n, unit) % 2 for n in lengths}) == 2
