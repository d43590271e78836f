"""State that is kept between calls, and several entries in one module."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.errors import LoweringError
from host.lowering import lower
from host.model import ImportedModel, LoweredModel
from targets.hardware import Bfloat16Products
from tests import tiny_decoder as tiny
from tests.unit.lowering.harness import board


def machine(model: LoweredModel) -> Any:
    executable = tvm.compile(model.module, target=tvm.target.Target({"kind": "llvm"}))
    return relax.VirtualMachine(executable, tvm.cpu())


def tensor(*values: int) -> Any:
    return tvm.runtime.tensor(np.array(values, "int32"))


def test_entries_share_state_kernels_and_parameters() -> None:
    model = lower(tiny.imported(), board())
    assert model.entries == ("prefill", "verify") and model.state == tiny.STATE
    # The constant of all entries is stored once, and the second kernel of the first two is one.
    assert [array.tolist() for array in model.parameters] == [[tiny.ADDED]]
    names = ["step", "score", "steps", "verified", "score_rows"]
    assert [(task.name, task.weight) for task in model.tasks] == [(name, 1) for name in names]
    run = machine(model)
    seen = tvm.runtime.tensor(np.zeros(tiny.CONTEXT, "float32"))
    shared = [seen, *map(tvm.runtime.tensor, model.parameters)]
    found = run["prefill"](tensor(3, 1, 4, 0), tensor(0), tensor(2), *shared).numpy()
    np.testing.assert_array_equal(found, tiny.logits([3, 1, 4]))
    # The padding of the chunk is overwritten before it is read.
    found = run["main"](tensor(7), tensor(3), *shared).numpy()
    np.testing.assert_array_equal(found, tiny.logits([3, 1, 4, 7]))
    assert seen.numpy()[:5].tolist() == [3, 1, 4, 7, 0]


def test_a_second_prefill_is_the_last_entry() -> None:
    model = lower(tiny.imported(long_prefilling=tiny.long_steps), board())
    assert model.entries == ("prefill", "verify", "long_prefill")
    assert [array.tolist() for array in model.parameters] == [[tiny.ADDED]]
    # One kernel more, the others have their names.
    names = ["step", "score", "steps", "verified", "score_rows", "long_steps"]
    assert [task.name for task in model.tasks] == names
    seen = tvm.runtime.tensor(np.zeros(tiny.CONTEXT, "float32"))
    shared = [seen, *map(tvm.runtime.tensor, model.parameters)]
    text = [3, 1, 4, 1, 5, 9, 2, 0]
    found = machine(model)["long_prefill"](tensor(*text), tensor(0), tensor(6), *shared).numpy()
    np.testing.assert_array_equal(found, tiny.logits(text[:7]))


def with_prefill(prefill: tvm.IRModule) -> ImportedModel:
    given = tiny.imported()
    assert given.decoder is not None
    return dataclasses.replace(given, decoder=dataclasses.replace(given.decoder, prefill=prefill))


def test_kernels_of_one_name_that_differ_are_both_kept() -> None:
    model = lower(with_prefill(tiny.module(tiny.steps, "step", tiny.PREFILL_INPUTS)), board())
    assert [task.name for task in model.tasks] == ["step", "score", "step_1", "verified", "score_rows"]
    seen = tvm.runtime.tensor(np.zeros(tiny.CONTEXT, "float32"))
    shared = [seen, *map(tvm.runtime.tensor, model.parameters)]
    found = machine(model)["prefill"](tensor(3, 1, 4, 0), tensor(0), tensor(2), *shared).numpy()
    np.testing.assert_array_equal(found, tiny.logits([3, 1, 4]))


def test_parameters_of_other_content_stay_apart() -> None:
    other = tiny.module(tiny.steps, "steps", tiny.PREFILL_INPUTS, constant=tiny.ADDED + 1)
    model = lower(with_prefill(other), board())
    assert [array.tolist() for array in model.parameters] == [[tiny.ADDED], [tiny.ADDED + 1]]
    assert [len(model.module[name].params) for name in ("main", "prefill")] == [5, 6]
    seen = tvm.runtime.tensor(np.zeros(tiny.CONTEXT, "float32"))
    shared = [seen, *map(tvm.runtime.tensor, model.parameters)]
    found = machine(model)["prefill"](tensor(3, 1, 4, 0), tensor(0), tensor(2), *shared).numpy()
    assert found.argmax() == (tiny.next_token([3, 1, 4]) + 1) % tiny.VOCABULARY


def test_what_state_is_not_compiled_for_is_refused() -> None:
    with pytest.raises(LoweringError, match="for a range of lengths"):
        lower(tiny.imported(), board(), any_length=True)
    products = Bfloat16Products("avx512bf16", 1.0, 4.0)
    hardware = dataclasses.replace(board().hardware, bfloat16=products)
    with_products = dataclasses.replace(board(), hardware=hardware)
    with pytest.raises(LoweringError, match="in bfloat16: use --dtype fp16"):
        lower(tiny.imported(), with_products, half="bfloat16")


@pytest.mark.parametrize("defect", ["two readers", "unused", "returned"])
def test_state_whose_changes_have_no_order_is_refused(defect: str) -> None:
    given = tiny.imported()
    builder = relax.BlockBuilder()
    variables = [relax.Var(v.name, v.ty) for v in given.module["main"].params]
    scalar = relax.TensorType((1,), "float32")
    with builder.function("main", variables):
        with builder.dataflow():
            kernel = builder.add_func(tiny.step, "step")
            arguments = [*variables, relax.const(np.array([1], "float32"))]
            first = builder.emit(relax.call_tir(kernel, arguments, scalar))
            if defect == "two readers":
                first = builder.emit(relax.op.add(first, relax.op.sum(variables[-1])))
            elif defect == "returned":
                first = variables[-1]
            else:
                first = builder.emit(relax.op.astype(variables[0], "float32"))
            result = builder.emit_output(first)
        builder.emit_func_output(result)
    with pytest.raises(LoweringError, match="let one operation read and change it"):
        lower(dataclasses.replace(given, module=builder.get(), decoder=None), board())
