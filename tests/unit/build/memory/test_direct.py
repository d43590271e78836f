"""No instruction of the virtual machine gives a tensor another name, or a shape that no kernel looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.unit.build.memory.programs import Program, numbers

COPY, RESHAPE = "vm.builtin.copy", "vm.builtin.reshape"


def between(builder: relax.BlockBuilder, x: relax.Var) -> Any:
    """A view of a view between two kernels."""
    a = builder.emit(relax.op.exp(x))
    flat = builder.emit(relax.op.reshape(a, (24,)))
    turned = builder.emit(relax.op.reshape(flat, (4, 6)))
    return relax.op.sqrt(turned)


def of_an_input(builder: relax.BlockBuilder, x: relax.Var) -> Any:
    return relax.op.exp(builder.emit(relax.op.reshape(x, (2, 12))))


@pytest.mark.parametrize(
    ("write", "wanted"),
    [
        (between, lambda x: np.sqrt(np.exp(x)).reshape(4, 6)),
        (of_an_input, lambda x: np.exp(x).reshape(2, 12)),
    ],
)
def test_a_view_that_kernels_take_is_no_call(
    write: Any, wanted: Any, target: tvm.target.Target, tmp_path: Path
) -> None:
    program, x = Program([(3, 8)], write, target, tmp_path), numbers(3, 8)
    calls = program.calls(x)
    assert calls[RESHAPE] == calls[COPY] == 0
    [found] = program.run(x)
    np.testing.assert_allclose(found.numpy(), wanted(x), rtol=1e-5)


def test_what_is_returned_has_its_shape(target: tvm.target.Target, tmp_path: Path) -> None:
    def write(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        a = builder.emit(relax.op.exp(x))
        flat = builder.emit(relax.op.reshape(a, (24,)))
        return builder.emit(relax.Tuple([flat, builder.emit(relax.op.sqrt(flat)), a]))

    program, x = Program([(3, 8)], write, target, tmp_path), numbers(3, 8)
    assert program.calls(x)[RESHAPE] == 1
    found = [value.numpy() for value in program.run(x)]
    for value, wanted in zip(
        found, [np.exp(x).reshape(24), np.sqrt(np.exp(x)).reshape(24), np.exp(x)], strict=True
    ):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 8), (24,)])
def test_a_model_that_returns_its_input(
    shape: tuple[int, ...], target: tvm.target.Target, tmp_path: Path
) -> None:
    program = Program([(3, 8)], lambda _, x: relax.op.reshape(x, shape), target, tmp_path)
    x = numbers(3, 8)
    [found] = program.run(x)
    np.testing.assert_array_equal(found.numpy(), x.reshape(shape))


def test_results_of_one_kernel_are_taken_out_of_no_tuple(target: tvm.target.Target, tmp_path: Path) -> None:
    def write(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        halves = builder.emit(relax.op.split(x, 2, axis=1))
        return relax.op.subtract(builder.emit(halves[1]), builder.emit(halves[0]))

    program, x = Program([(3, 8)], write, target, tmp_path), numbers(3, 8)
    calls = program.calls(x)
    assert not [name for name in calls if "tuple" in name]
    np.testing.assert_array_equal(program.run(x)[0].numpy(), x[:, 4:] - x[:, :4])


def test_a_kernel_for_any_length_gets_the_shape_that_it_reads(
    target: tvm.target.Target, tmp_path: Path
) -> None:
    length = tvm.tirx.Var("n", "int64")

    def write(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        a = builder.emit(relax.op.exp(x))
        turned = builder.emit(relax.op.reshape(a, (4, length)))
        return relax.op.sqrt(turned)

    program = Program([(length, 4)], write, target, tmp_path, {"n": 16})
    for size in (5, 16, 1):
        x = numbers(size, 4)
        calls = program.calls(x)
        assert (calls[RESHAPE], calls[COPY]) == (1, 0)
        [found] = program.run(x)
        np.testing.assert_allclose(found.numpy(), np.sqrt(np.exp(x)).reshape(4, size), rtol=1e-5)
