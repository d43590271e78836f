"""Products whose first outputs take rows that are rounded to bytes, and whose others take exact ones."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.lowering import lower
from host.schedules import scheduled_function, space_for
from targets import Board, board_for, declared
from tests.decoders.operations import dequantised
from tests.scheduling.repetitions import seeds
from tests.unit.lowering.harness import imported
from tests.unit.lowering.numeric_types.test_quantised_weights import KINDS, Kind, run, weight_of
from tests.unit.schedules.cpu import dot_cases as cases

_ROWS, _DEPTH = 8, 128


def divided(kind: Kind, columns: int, first: int) -> tuple[Any, np.ndarray]:
    """The module of both parts, next to each other, and the values of the weight."""
    weight = weight_of(columns, _DEPTH, kind)
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((_ROWS, _DEPTH), "float32"))
    constants = [relax.const(one) for one in weight]
    with builder.function("main", [data]):
        with builder.dataflow():
            parts = []
            for begin, end, rounding in ((0, first, 8), (first, columns, 16)):
                options = {**kind.options, "rounding": rounding, "first": begin}
                arguments = relax.Tuple([data, *constants, tvm.ir.StringImm(json.dumps(options))])
                result = relax.TensorType((_ROWS, end - begin), "float32")
                parts.append(
                    builder.emit(relax.call_dps_packed("edgetlm.quantised_dense", arguments, result))
                )
            made = builder.emit_output(builder.emit(relax.op.concat(parts, axis=1)))
        builder.emit_func_output(made)
    return builder.get(), dequantised(weight, kind.options)


def rows() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(_ROWS, _DEPTH)).astype("float32")


def programs_of(model: Any, on: Board, seed: int) -> dict[str, Any]:
    """A random program of each product."""
    made = {}
    for task in model.tasks:
        if "dense" not in task.name:
            continue
        space = space_for(task, on.hardware, 2)
        candidate = space.candidate(space.sample(random.Random(seed)), "test")
        function = scheduled_function(space.apply(candidate))
        made[task.name] = function.with_attr("global_symbol", task.name)
    return made


@seeds(3)
@pytest.mark.parametrize("kind", ["int4", "int8", "int4 with zero points", "Q4_K", "Q6_K"])
def test_one_weight_is_read_by_both_parts(kind: str, seed: int) -> None:
    on = cases.vnni_board(2)
    module, weight = divided(KINDS[kind], 96, 64)
    model = lower(imported(module), on)
    products = [task for task in model.tasks if "dense" in task.name]
    assert len(products) == 2
    # Packed once: 96 outputs in panels of 16.
    bits = KINDS[kind].bits
    assert sum(one.nbytes for one in model.parameters if one.ndim == 5) == 96 * _DEPTH * bits // 8
    data = rows()
    made = run(model, programs_of(model, on, seed), data, on=on)
    wanted = data.astype("float64") @ weight.T.astype("float64")
    errors = np.abs(made - wanted).max(axis=0) / np.abs(wanted).max()
    assert errors[:64].max() > 1e-3 and errors[:64].max() < 2e-2
    assert errors[64:].max() < 2e-4


@pytest.mark.parametrize(
    ("on", "kind", "first"),
    [(cases.vnni_board(2), "int4", 40), (cases.pairs_board(2), "int8", 64)],
    ids=["a panel has outputs of both", "nothing gains by rounding"],
)
def test_all_outputs_are_computed_at_once_where_they_cannot_be_divided(
    on: Board, kind: str, first: int
) -> None:
    module, weight = divided(KINDS[kind], 96, first)
    model = lower(imported(module), on)
    assert len([task for task in model.tasks if "dense" in task.name]) == 1
    data = rows()
    made = run(model, programs_of(model, on, 0), data, on=on)
    wanted = data.astype("float64") @ weight.T.astype("float64")
    assert np.abs(made - wanted).max() <= 2e-4 * np.abs(wanted).max()


def test_a_gpu_computes_all_outputs_at_once() -> None:
    module, _ = divided(KINDS["int4"], 96, 64)
    jetson = board_for(declared()["jetson_orin_nano"])
    assert jetson is not None
    model = lower(imported(module), jetson.on_gpu())
    names = [one.name_hint for one in model.module.get_global_vars()]
    assert len([name for name in names if "quantised_dense" in name]) == 1
