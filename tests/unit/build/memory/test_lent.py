"""Functions whose tensors between kernels are made once for all calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.build.memory.lent import LENT, TENSORS
from tests.unit.build.memory.programs import Program, numbers

MAKING = ("vm.builtin.alloc_storage", "vm.builtin.alloc_tensor")


def branched(builder: relax.BlockBuilder, x: relax.Var) -> Any:
    """Tensors that are alive together, one of them returned as a view."""
    a = builder.emit(relax.op.exp(x))
    b = builder.emit(relax.op.sqrt(a))
    c = builder.emit(relax.op.add(a, b))
    d = builder.emit(relax.op.multiply(c, a))
    flat = builder.emit(relax.op.reshape(d, (24,)))
    return builder.emit(relax.Tuple([flat, builder.emit(relax.op.sqrt(d))]))


def wanted(x: np.ndarray) -> list[np.ndarray]:
    a = np.exp(x)
    d = (a + np.sqrt(a)) * a
    return [d.reshape(24), np.sqrt(d)]


def test_only_results_are_made_in_a_call(target: tvm.target.Target, tmp_path: Path) -> None:
    program, x = Program([(3, 8)], branched, target, tmp_path), numbers(3, 8)
    calls = program.calls(x, tensors=program.tensors())
    machine = {name: count for name, count in calls.items() if name.startswith("vm.builtin.")}
    checked = {name: count for name, count in machine.items() if "check" in name or "match" in name}
    expected = dict.fromkeys(MAKING, 2) | {"vm.builtin.make_tuple": 1, "vm.builtin.reshape": 1}
    assert {name: count for name, count in machine.items() if name not in checked} == expected
    # Of the input; what is lent was made by the library itself.
    assert sum(checked.values()) <= 2
    assert program.calls(x)["vm.builtin.alloc_tensor"] > 2


def test_results_of_a_call_stay_when_others_follow(target: tvm.target.Target, tmp_path: Path) -> None:
    program = Program([(3, 8)], branched, target, tmp_path)
    tensors, given = program.tensors(), [numbers(3, 8, seed=seed) for seed in range(4)]
    found = [program.run(x, tensors=tensors) for x in given]
    alone = [program.run(x) for x in given]
    for results, others, x in zip(found, alone, given, strict=True):
        for value, other, right in zip(results, others, wanted(x), strict=True):
            np.testing.assert_array_equal(value.numpy(), other.numpy())
            np.testing.assert_allclose(value.numpy(), right, rtol=1e-5)


def test_tensors_are_made_anew_for_each_that_asks(target: tvm.target.Target, tmp_path: Path) -> None:
    program = Program([(3, 8)], branched, target, tmp_path)
    first, second = program.tensors(), program.tensors()
    assert len(first) == 3
    addresses = [{int(tensor.data_ptr()) for tensor in tensors} for tensors in (first, second)]
    assert not addresses[0] & addresses[1]


def test_lengths_that_are_open_are_not_lent(target: tvm.target.Target, tmp_path: Path) -> None:
    length = tvm.tirx.Var("n", "int64")

    def write(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        return relax.op.sqrt(builder.emit(relax.op.exp(x)))

    program = Program([(length, 4)], write, target, tmp_path, {"n": 16})
    assert not program.lends
    for size in (16, 3):
        np.testing.assert_allclose(
            program.run(numbers(size, 4))[0].numpy(), np.sqrt(np.exp(numbers(size, 4))), rtol=1e-5
        )


def test_a_model_of_one_kernel_has_nothing_to_lend(target: tvm.target.Target, tmp_path: Path) -> None:
    program = Program([(3, 8)], lambda _, x: relax.op.exp(x), target, tmp_path)
    assert not program.lends


def test_inputs_and_results_alias_no_tensor_that_is_lent(target: tvm.target.Target, tmp_path: Path) -> None:
    """A result that is an input, and one that is the view of what another kernel reads later."""

    def write(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        a = builder.emit(relax.op.exp(x))
        b = builder.emit(relax.op.sqrt(a))
        flat = builder.emit(relax.op.reshape(b, (24,)))
        c = builder.emit(relax.op.exp(flat))
        d = builder.emit(relax.op.sqrt(c))
        return builder.emit(relax.Tuple([x, flat, d]))

    program = Program([(3, 8)], write, target, tmp_path)
    tensors = program.tensors()
    given = [numbers(3, 8, seed=seed) for seed in range(3)]
    found = [program.run(x, tensors=tensors) for x in given]
    for results, x in zip(found, given, strict=True):
        b = np.sqrt(np.exp(x)).reshape(24)
        for value, right in zip(results, [x, b, np.sqrt(np.exp(b))], strict=True):
            np.testing.assert_allclose(value.numpy(), right, rtol=1e-5)
    lent = {int(tensor.data_ptr()) for tensor in tensors}
    assert not lent & {int(value.data_ptr()) for results in found for value in results}


@pytest.mark.parametrize(
    "runner",
    [
        "device_agent/execute/virtual_machine.py",
        "device_agent/native/executor/execute/bundle.cc",
        "examples/cpp/bundle.h",
    ],
)
def test_every_runner_looks_for_the_functions_by_their_names(runner: str) -> None:
    """One that finds none of them calls the function itself, which is right and slower."""
    text = (Path(__file__).parents[4] / runner).read_text()
    assert all(f'"{name.removesuffix("%s")}' in text for name in (TENSORS, LENT))
