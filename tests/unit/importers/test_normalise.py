from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from host.importers.native_output import quiet
from host.importers.normalise import normalise
from tests.unit.lowering.harness import run

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def module(build) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(build(builder, x))
        builder.emit_func_output(out)
    return builder.get()


def calls(made: tvm.IRModule) -> list[str]:
    names: list[str] = []

    def visit(expression) -> None:
        if isinstance(expression, relax.Call):
            names.append(expression.op.name)

    relax.analysis.post_order_visit(made["main"], visit)
    return names


def test_small_powers_become_products() -> None:
    for exponent, expected in ((2.0, X**2), (3.0, X**3), (1.0, X)):
        made = normalise(module(lambda b, x, e=exponent: relax.op.power(x, relax.const(e))))
        assert "relax.power" not in calls(made)
        np.testing.assert_allclose(run(made, [X])[0], expected, rtol=1e-5)


def test_other_powers_stay() -> None:
    made = normalise(module(lambda b, x: relax.op.power(relax.op.abs(x), relax.const(2.5))))
    assert "relax.power" in calls(made)


def test_moves_that_change_nothing_go() -> None:
    def build(builder, x):
        y = builder.emit(relax.op.astype(x, "float32"))
        y = builder.emit(relax.op.reshape(y, X.shape))
        return relax.op.nn.relu(builder.emit(relax.op.broadcast_to(y, X.shape)))

    assert calls(normalise(module(build))) == ["relax.nn.relu"]


def test_moves_that_change_something_stay() -> None:
    assert calls(normalise(module(lambda b, x: relax.op.reshape(x, (4, 3))))) == ["relax.reshape"]


def test_takes_are_kept_within_bounds() -> None:
    def build(builder, x):
        return relax.op.take(x, relax.const(np.array([2, 7], "int64"), "int64"), 0, mode="fast")

    np.testing.assert_array_equal(run(normalise(module(build)), [X])[0], X[[2, 2]])


def test_constant_places_below_0_count_from_the_end() -> None:
    for places, axis in ((-1, 1), ([-2, 0], 0)):
        build = lambda b, x, p=places, a=axis: relax.op.take(x, relax.const(p, "int64"), a)  # noqa: E731
        np.testing.assert_array_equal(run(normalise(module(build)), [X])[0], X.take(places, axis))


def test_native_warnings_are_kept_quiet(capfd) -> None:
    with quiet():
        builder = relax.BlockBuilder()
        try:
            with builder.function("main", []):
                raise ValueError("left open")
        except ValueError:
            del builder
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 2, 2), (2, 1, 2), (3, 1, 2), (2, 2, 1), (1, 1, 1)])
def test_scatters_of_a_part_leave_the_rest(shape: tuple[int, ...], axis: int) -> None:
    cube = X.reshape(3, 2, 2)
    backwards = np.arange(shape[axis])[::-1].reshape([-1 if one == axis else 1 for one in range(3)])
    places = np.broadcast_to(backwards, shape)
    updates = np.random.default_rng(0).normal(size=shape).astype("float32")
    wanted = cube.copy()
    part = tuple(slice(None) if one == axis else slice(size) for one, size in enumerate(shape))
    np.put_along_axis(wanted[part], places, updates, axis)

    def build(builder, x):
        data = builder.emit(relax.op.reshape(x, cube.shape))
        indices = relax.const(places.astype("int64"))
        return relax.op.scatter_elements(data, indices, relax.const(updates), axis=axis)

    np.testing.assert_array_equal(run(normalise(module(build)), [X])[0], wanted)


def test_indices_of_several_axes_are_kept_within_them() -> None:
    def places(builder, x):
        """Whole numbers from -6 to 6, for axes of three and four elements."""
        return builder.emit(relax.op.astype(builder.emit(relax.op.multiply(x, relax.const(3.0))), "int64"))

    def taken(builder, x):
        at = places(builder, x)
        return relax.op.index_tensor(x, relax.Tuple([at, at]))

    def put(builder, x):
        at = builder.emit(relax.op.reshape(places(builder, x), (12,)))
        return relax.op.index_put(x, relax.Tuple([at, at]), relax.const(np.full(12, 7, np.float32)))

    at = (X * 3).astype(np.int64)
    rows, columns = (np.clip(np.where(at < 0, at + size, at), 0, size - 1) for size in X.shape)
    np.testing.assert_array_equal(run(normalise(module(taken)), [X])[0], X[rows, columns])
    written = X.copy()
    written[rows, columns] = 7
    np.testing.assert_array_equal(run(normalise(module(put)), [X])[0], written)


@pytest.mark.parametrize("index", [0, 7])
def test_scatters_into_one_number_stay_within_it(index: int) -> None:
    def build(builder, x):
        one, places = relax.const(np.float32(2)), relax.const(np.int64(index), "int64")
        return relax.op.scatter_elements(one, places, builder.emit(relax.op.sum(x)), axis=0)

    (made,) = run(normalise(module(build)), [X])
    np.testing.assert_allclose(made, X.sum(), atol=1e-5)
