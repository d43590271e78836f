"""Products with quantised weights on a GPU, of few rows and of many, for every form of weights."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from host.schedules import scheduled_function, space_for
from targets.nvidia import ORIN_NANO
from tests.cuda_emulator.run import emulate
from tests.unit.lowering.numeric_types.test_quantised_weights import KINDS, product
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

# Rows of activations, and the rule that takes them; of the depth 64, chunks of a warp are not whole.
STEP, CHUNK = (1, "cuda_quantised"), (24, "cuda_mma")
CASES = [
    ("int4", *STEP),
    ("int8", 4, "cuda_quantised"),
    ("int4", *CHUNK),
    *(
        pytest.param(kind, *form, marks=pytest.mark.long)
        for kind in KINDS
        for form in (STEP, CHUNK)
        if (kind, *form) not in (("int4", *STEP), ("int4", *CHUNK))
    ),
]


@pytest.mark.parametrize(("kind", "rows", "rule"), CASES)
def test_programs_compute_the_product(kind: str, rows: int, rule: str, tmp_path: Path) -> None:
    depth = 1152 if kind == "int4" and rows == 1 else 192
    model, weight = product(rows, 40, depth, KINDS[kind], gpu_board(ORIN_NANO))
    [task] = model.tasks
    space = space_for(task, gpu_board(ORIN_NANO).hardware)
    assert space.rule.name == rule
    data = np.random.default_rng(rows).normal(size=(rows, depth)).astype("float32")
    made = np.full((rows, 40), np.nan, "float32")
    values = space.sample(random.Random(rows))
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    done = emulate(function, [data, *model.parameters, made], gpu_target(), tmp_path)
    exact = data.astype("float64") @ weight.T.astype("float64")
    # Tensor cores round both operands to halves.
    least = 2e-6 if rule == "cuda_quantised" else 2e-3
    assert (np.abs(made - exact) <= least * np.abs(data).sum(1, keepdims=True) * np.abs(weight).max()).all()
    assert not any(one.spills for one in done.kernel.resources), values
