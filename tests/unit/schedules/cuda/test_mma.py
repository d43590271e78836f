"""Products on tensor cores: what they compute, where the rule applies, and what its programs ask of a GPU."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from benchmarks.gpu.launches import launches_of
from host.build import compile_cuda
from host.gensor.walk import WalkOptions, construct
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.cuda.mma.product import decided, product_of
from host.schedules.cuda.mma.tiles import shared_accesses, tiling_of
from host.schedules.cuda.tiled.banks import bank_passes
from targets import GpuModel
from targets.nvidia import AGX_ORIN, AGX_THOR, H100, ORIN_NANO, XAVIER_NX
from tests.cuda_emulator.run import emulate
from tests.scheduling.repetitions import seeds
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda import mma_cases as mma
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

CASES = mma.mma_cases()
VALUES = {
    "rows": 32, "cols": 32, "row_warps": 2, "column_warps": 2, "slices": 1, "depth": 32, "stages": 3,
    "splits": 1,
}  # fmt: skip
# Rows, columns and depth of layers: BERT-base, ViT, Swin, a classifier, decoders with one and 16 tokens, the
# first and last stage of ResNet-50, and a small encoder.
SHAPES = [
    (128, 768, 768), (128, 3072, 768), (197, 768, 3072), (49, 1024, 2048), (1, 1024, 2048),
    (1, 4096, 4096), (16, 11008, 4096), (3136, 256, 64), (49, 512, 2048), (512, 128, 128),
]  # fmt: skip


def _space(function: tirx.PrimFunc, gpu: GpuModel = ORIN_NANO) -> DesignSpace:
    return space_for(fn.task(function), gpu_board(gpu).hardware)


def _program(space: DesignSpace, values: dict[str, int]) -> tirx.PrimFunc:
    return scheduled_function(space.apply(space.candidate(values, "test")))


@seeds(3)
@pytest.mark.parametrize("name", CASES)
def test_random_programs_compute_the_task(name: str, seed: int, tmp_path: Path) -> None:
    case = CASES[name]
    space = _space(case.function)
    assert space.rule.name == "cuda_mma"
    generator = random.Random(name)
    values = [space.sample(generator, 50_000) for _ in range(seed + 1)][-1]
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    done = emulate(_program(space, values), [*case.inputs, output], gpu_target(), tmp_path)
    tolerance = 1e-3 if output.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(output, case.output, rtol=tolerance, atol=tolerance, err_msg=str(values))
    product = product_of(space.workload)
    assert product is not None
    assert not any(resources.spills for resources in done.kernel.resources), values
    tiling = tiling_of(decided(product, values), values)
    shared = max(resources.shared_bytes for resources in done.kernel.resources)
    assert shared in (tiling.shared_bytes, 0)
    assert shared or tiling.shared_bytes > ORIN_NANO.shared_per_block
    assert done.counters.products
    assert done.counters.load_conflicts == done.counters.copy_conflicts == 0, values


def test_each_strip_of_rows_ends_with_its_own_sums(tmp_path: Path) -> None:
    """Both strips of a warp are written out, without a loop around them; each reads sums of its own."""
    case = CASES["rounded"]
    values = {**VALUES, "row_warps": 1, "column_warps": 1, "slices": 4, "depth": 16, "splits": 1}
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    emulate(_program(_space(case.function), values), [*case.inputs, output], gpu_target(), tmp_path)
    np.testing.assert_allclose(output, case.output, rtol=1e-3, atol=1e-3)


def test_blocks_share_a_reduction(tmp_path: Path) -> None:
    case = CASES["many steps"]
    space = _space(case.function)
    values = {**VALUES, "rows": 16, "row_warps": 1, "column_warps": 1, "depth": 16, "splits": 3}
    assert space.legal(values) and not space.legal({**values, "splits": 4})
    (whole,) = launches_of(_program(space, {**values, "splits": 1}))
    program = _program(space, values)
    shared, _ = launches_of(program)
    assert shared.count == 3 * whole.count, "a second kernel adds up what three blocks have of each tile"
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    emulate(program, [*case.inputs, output], gpu_target(), tmp_path)
    np.testing.assert_allclose(output, case.output, rtol=1e-3, atol=1e-3)


def test_sums_of_splits_take_little_memory() -> None:
    values = {**VALUES, "rows": 64, "splits": 4}
    assert _space(mma.dense(1024, 2048, 512), H100).legal(values)
    assert not _space(mma.dense(1024, 4096, 512), H100).legal(values)


def test_more_shared_memory_than_a_block_may_declare_is_asked_for(tmp_path: Path) -> None:
    case = CASES["rounded"]
    space = _space(case.function)
    values = {**VALUES, "rows": 64, "row_warps": 1, "column_warps": 2, "slices": 2, "stages": 4}
    done = emulate(
        program := _program(space, values),
        [*case.inputs, np.full(case.output.shape, np.nan, case.output.dtype)],
        gpu_target(),
        tmp_path,
    )
    (resources,) = done.kernel.resources
    (launch,) = launches_of(program)
    assert resources.shared_bytes == 0 and launch.shared_bytes > ORIN_NANO.shared_per_block


@pytest.mark.parametrize(("change", "stages"), [("wait", 2), ("wait", 4), ("barrier", 3), ("commit", 3)])
def test_the_emulation_sees_what_is_missing(
    change: str, stages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait, barrier and group of the pipeline is needed: without it the numbers are others."""
    case = CASES["many steps"]
    space = _space(case.function)
    values = {**VALUES, "rows": 16, "row_warps": 1, "column_warps": 1, "slices": 2, "stages": stages}
    nothing = tirx.Evaluate(0)
    module = "host.schedules.cuda.mma.instructions"
    if change == "wait":
        monkeypatch.setattr(f"{module}.wait", lambda groups: nothing)
    elif change == "commit":
        monkeypatch.setattr(f"{module}.commit", lambda: nothing)
    else:
        monkeypatch.setattr(f"{module}.block_barrier", lambda: nothing)
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    emulate(_program(space, values), [*case.inputs, output], gpu_target(), tmp_path)
    assert not np.allclose(output, case.output, rtol=1e-3, atol=1e-3)


def test_every_decision_changes_the_program() -> None:
    space = _space(mma.dense(256, 256, 256))
    first = _program(space, VALUES).script()
    for decision in space.decisions:
        other = next(
            values
            for choice in decision.choices
            if choice != VALUES[decision.name] and space.legal(values := {**VALUES, decision.name: choice})
        )
        assert _program(space, other).script() != first, decision.name


# Of a sample of all programs; by hand of every one.
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "function",
    [
        mma.dense(256, 256, 256),
        mma.batched(2, 64, 64, 64, True),
        mma.swapped(64, 64, 64),
        mma.in_groups(14, 8, 4, 4),
    ],
)
def test_no_access_to_shared_memory_meets_another_in_a_bank(function: tirx.PrimFunc, every: bool) -> None:
    space = _space(function)
    product = product_of(space.workload)
    assert product is not None
    generator = random.Random(0)
    drawn = fn.legal_values(space) if every else [space.sample(generator, 50_000) for _ in range(400)]
    tilings = {tiling_of(decided(product, values), values) for values in drawn}
    for tiling in tilings:
        for name, places, size in shared_accesses(tiling):
            words = {place // 4 + word for place in places for word in range(size // 4)}
            assert bank_passes(words, ORIN_NANO.shared_banks) == 1, (name, tiling)
    assert len(tilings) > 20


# On the larger GPU every third shape, and all of them by hand.
@pytest.mark.parametrize(
    ("shape", "gpu"),
    [
        *[pytest.param(shape, ORIN_NANO, id=f"{shape}-orin") for shape in SHAPES],
        *[
            pytest.param(shape, H100, id=f"{shape}-h100", marks=[pytest.mark.long] if number % 3 else [])
            for number, shape in enumerate(SHAPES)
        ],
    ],
)
def test_construction_finds_the_best_by_its_estimate(shape: tuple[int, int, int], gpu: GpuModel) -> None:
    space = _space(mma.dense(*shape), gpu)
    (_, constructed), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
    best = min(map(space.estimate_s, fn.legal_values(space)))
    assert best / constructed >= 0.995


FUNCTIONS = {
    **{str(shape): mma.dense(*shape) for shape in SHAPES},
    "convolution 3x3": mma.convolution(28, 128, 128, 3, 1),
    "convolution 3x3, stride 2": mma.convolution(56, 64, 128, 3, 2),
    "values of 197": mma.batched(12, 197, 64, 197),
}


# Every function on one of the GPUs, and on all of them by hand.
@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        pytest.param(
            name, gpu, id=f"{name}-{gpu.arch}", marks=[] if number % 3 == turn else [pytest.mark.long]
        )
        for number, name in enumerate(FUNCTIONS)
        for turn, gpu in enumerate((AGX_ORIN, H100, AGX_THOR))
    ],
)
def test_constructed_programs_stay_in_registers(name: str, gpu: GpuModel) -> None:
    space = _space(FUNCTIONS[name], gpu)
    (values, _), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
    major = 13 if gpu is AGX_THOR else 12
    kernel = compile_cuda(_program(space, values), "kernel", gpu_target(gpu), cuda_major=major)
    assert not any(one.spills or one.stack_bytes for one in kernel.resources), values


def test_programs_of_jetpack_5_compile() -> None:
    kernel = compile_cuda(
        _program(_space(CASES["values"].function), VALUES), "kernel", gpu_target(), cuda_major=11
    )
    assert not kernel.resources[0].spills


@pytest.mark.parametrize(
    ("function", "widths", "vector"),
    [
        (mma.dense(128, 768, 768), (8, 8), 4),
        (mma.dense(128, 768, 196), (4, 8), 4),
        (mma.dense(37, 64, 74, 32, 50), (2, 8), 2),
        (mma.batched(12, 197, 197, 64), (8, 1), 1),
        (mma.batched(12, 197, 197, 64, transposed=True), (8, 8), 1),
        (mma.batched(12, 197, 64, 197), (1, 8), 4),
        (mma.swapped(40, 56, 33), (8, 8), 4),
        (mma.convolution(14, 64, 64, 3, 1), (8, 8), 4),
        (mma.convolution(9, 12, 48, 3, 2, 16), (4, 8), 4),
        (mma.filled(20, 32, 40, 32), (1, 8), 4),
        (mma.convolution(9, 16, 48, 3, 2, 16, "float32"), (1, 8), 4),
        (mma.in_groups(6, 8, 4, 4), (8, 4), 4),
        (mma.in_groups(6, 3, 8, 8), (8, 8), 4),
        (mma.in_groups(5, 7, 3, 3), (1, 1), 1),
    ],
)
def test_copies_and_stores_are_as_wide_as_the_layout_allows(
    function: tirx.PrimFunc, widths: tuple[int, int], vector: int
) -> None:
    product = product_of(analyse(function))
    assert product is not None
    assert (product.left.width, product.right.width) == widths
    assert product.vector == vector


def test_rows_are_numbered_together() -> None:
    product = product_of(_space(mma.residual(2, 19, 64, 48)).workload)
    assert product is not None
    assert (product.batches, product.rows, product.columns, product.steps) == (1, 38, 64, 48)


def test_gpus_without_the_instruction_keep_the_general_rule() -> None:
    function = mma.dense(128, 768, 768)
    assert XAVIER_NX.matrix_fp16_per_cycle == 0
    assert _space(function, XAVIER_NX).rule.name == "cuda_tiled"
    assert _space(function, AGX_THOR).rule.name == "cuda_mma"


def _dense_after(change: str) -> tirx.PrimFunc:
    """A product of halves but for one thing."""
    a, w = te.placeholder((32, 64), "float16", "A"), te.placeholder((64, 32), "float16", "W")
    if change == "weights in single precision":
        w = te.placeholder((64, 32), "float32", "W")
    wide = te.compute(a.shape, lambda i, k: a[i, k].astype("float32"), name="widened0")
    if change == "computed operand":
        wide = te.compute(a.shape, lambda i, k: a[i, k].astype("float32") * 2.0, name="prologue")
    weight = te.compute(w.shape, lambda k, j: w[k, j].astype("float32"), name="widened1")
    k = te.reduce_axis((0, 8 if change == "little depth" else 64), "k")
    if change == "three factors":
        total = te.compute(
            (32, 32), lambda i, j: te.sum(wide[i, k] * weight[k, j] * 2.0, axis=[k]), name="matmul"
        )
    else:
        total = te.compute((32, 32), lambda i, j: te.sum(wide[i, k] * weight[k, j], axis=[k]), name="matmul")
    if change == "neighbours mixed":
        total = te.compute((32, 31), lambda i, j: total[i, j] + total[i, j + 1], name="epilogue")
    if change == "rows left out":
        total = te.compute((16, 32), lambda i, j: total[i, j] * 2.0, name="epilogue")
    outputs = [total]
    if change == "two results":
        outputs.append(te.compute((32, 32), lambda i, j: total[i, j] * 2.0, name="epilogue"))
    return te.create_prim_func([a, w, *outputs])


@pytest.mark.parametrize(
    "change",
    [
        "weights in single precision",
        "computed operand",
        "little depth",
        "three factors",
        "rows left out",
        "two results",
    ],
)
def test_what_is_no_product_of_halves_is_left_to_other_rules(change: str) -> None:
    assert product_of(analyse(_dense_after("nothing"))) is not None
    assert product_of(analyse(_dense_after(change))) is None


def test_only_zeros_fill_an_operand_up() -> None:
    assert product_of(analyse(mma.filled(20, 32, 40, 37))) is not None
    assert product_of(analyse(mma.filled(20, 32, 40, 37, fill=1.0))) is None


def test_results_that_are_mixed_are_left_to_other_rules() -> None:
    workload = analyse(_dense_after("neighbours mixed"))
    # A stage that reads two results of the product in one place reads none in its own.
    assert product_of(workload) is None


def test_what_does_not_fit_is_refused() -> None:
    space = _space(mma.dense(256, 256, 256))
    assert space.legal(VALUES)
    assert space.legal({**VALUES, "slices": 2}), "both halves of a depth of 64"
    deep = {**VALUES, "rows": 16, "row_warps": 1, "column_warps": 1, "slices": 4, "depth": 64, "stages": 2}
    assert not space.legal(deep), "a depth of 256"
    assert not _space(mma.dense(256, 256, 30)).legal({**VALUES, "slices": 2}), "the second slice has nothing"
    assert not space.legal({**VALUES, "rows": 64, "row_warps": 4}), "a block of 256 rows"
    large = {**VALUES, "rows": 64, "cols": 64, "row_warps": 2, "column_warps": 2, "depth": 64}
    assert not space.legal(large), "three stages of 32 KiB"
    small = _space(mma.dense(20, 256, 256))
    assert not small.legal({**VALUES, "rows": 16, "row_warps": 4}), "two thirds of the rows are empty"


def test_candidates_of_one_seed_are_one_program() -> None:
    space = _space(mma.dense(64, 64, 64))
    values = space.sample(random.Random(4), 50_000)
    first, second = (space.apply(space.candidate(values, "random")).mod for _ in range(2))
    tvm.ir.assert_structural_equal(first, second)
