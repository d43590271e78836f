"""Parameters of the estimates: each moves estimates of its rule, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from host.model import DeviceProfile
from host.records.store import profile_data
from host.schedules import DesignSpace, space_for
from host.schedules.constants import EstimateConstant, as_learned, parameters_of
from host.schedules.cpu.dot.intrinsics import TILES
from host.schedules.families import installed_rules
from tests.unit.lowering.attention.test_cached_attention import Case as AttentionCase
from tests.unit.lowering.attention.test_cached_attention import lowered as lowered_attention
from tests.unit.lowering.numeric_types.test_quantised_weights import Kind, product
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu import bfloat16_cases, dot_cases
from tests.unit.schedules.cpu.algorithms import test_scatter, test_steps
from tests.unit.schedules.cpu.lane_dots_cases import Depthwise
from tests.unit.schedules.cpu.test_attention import _space as attention_space
from tests.unit.schedules.cpu.test_recurrent import _space as recurrent_space
from tests.unit.schedules.cpu.tiled.test_half_sums_programs import space_of as half_sums_space
from tests.unit.schedules.cpu.tiles import test_gated_tiles, test_quantised_tiles, tile_cases
from tests.unit.schedules.cpu.winograd_cases import space_of as winograd_space

RULES = {rule.name: rule for rule in installed_rules() if rule.constants}
_DRAWS = 60


def _spaces(rule: str) -> Iterator[DesignSpace]:
    """Spaces of a rule whose programs meet every effect that its estimate knows."""
    board = fn.board(restrict="avx2")
    if rule == "tiled":
        sizes = [(23, 48, 40), (197, 3072, 768), (1, 4096, 4096), (4, 8192, 2048), (128, 1024, 512)]
        functions = [fn.dense(*size, lanes=8) for size in sizes]
        functions += [fn.convolution(56, 64, 64, 3, 1), fn.depthwise(28, 192, 1), fn.batched(4, 64, 512, 512)]
        functions += [fn.depthwise(7, 64, 1, 5)]
        functions += [fn.batched(32, 1, 1024, 128), fn.convolution(224, 64, 512, 3, 1)]
        functions += [fn.batched(4, 49, 49, 49)]
        yield from (space_for(fn.task(function), board.hardware) for function in functions)
        for function in (fn.dense(64, 512, 4096), fn.dense(784, 64, 16)):
            yield space_for(fn.task(function), fn.board().hardware)
        # Bands of rows for two threads, whose vectors are not full either.
        yield space_for(fn.task(fn.batched(1, 161, 161, 64)), board.hardware, threads=2)
    elif rule == "dot":
        pairs, bytes_of = dot_cases.pairs_board(), dot_cases.vnni_board()
        yield space_for(dot_cases.dense_task(64, 64, 64, 8, "int16"), pairs.hardware)
        yield space_for(dot_cases.dense_task(64, 64, 64, 16, "uint8"), bytes_of.hardware)
        yield space_for(bfloat16_cases.dense_task(64, 64, 64), bfloat16_cases.board().hardware)
        in_tiles = space_for(dot_cases.dense_task(49, 512, 2048, 16), tile_cases.board().hardware)
        settled = {"intrinsic": (TILES,), "unroll": (1,), "window": (0,)}
        yield replace(
            in_tiles,
            decisions=tuple(replace(d, choices=settled.get(d.name, d.choices)) for d in in_tiles.decisions),
        )
    elif rule == "lane_dots":
        processor = dot_cases.vnni_board().hardware
        yield space_for(Depthwise(28, 28, 64, 3).task(processor), processor)
    elif rule == "half_sums":
        yield half_sums_space("dense", 1)
    elif rule == "winograd":
        for size, channels in ((56, 64), (14, 512), (7, 512)):
            yield winograd_space(board, (1, size, size, channels), channels, 4)
    elif rule == "attention":
        yield attention_space("whole")[0]
    elif rule == "quantised":
        on = dot_cases.vnni_board()
        for rows in (1, 8):
            [task] = [one for one in product(rows, 1024, 512, Kind(4), on)[0].tasks if "dense" in one.name]
            yield space_for(task, on.hardware)
    elif rule == "quantised_tiles":
        # Weights that few rows share come from memory, and those of many are computed with.
        for rows in (32, 512):
            on = tile_cases.board()
            [task] = [
                one
                for one in product(rows, 1024, 512, Kind(4, rounding=8), on)[0].tasks
                if "dense" in one.name
            ]
            yield space_for(task, on.hardware)
    elif rule == "gated_tiles":
        for rows in (32, 512):
            on = tile_cases.board()
            model, _ = test_gated_tiles.gated((rows, 512, 512), Kind(4, rounding=8), on)
            yield space_for(test_quantised_tiles.task_of(model), on.hardware)
    elif rule == "cached_attention":
        # With many tokens its arithmetic counts, with one the memory that it reads.
        for rows in (64, 1):
            [task] = lowered_attention(AttentionCase(rows, 8, 8, 64, 4096)).tasks
            yield space_for(task, replace(board.hardware, fma_per_cycle=8.0 if rows == 1 else 0.5))
        # Threads that share the positions of a head.
        [task] = lowered_attention(AttentionCase(1, 8, 1, 64, 4096)).tasks
        yield space_for(task, board.hardware, threads=4)
    elif rule == "recurrent":
        yield recurrent_space("gru reset after", threads=2)[0]
    elif rule == "scatter":
        # A row of updates has one place, or each element its own.
        for case in ("a row of updates for each index", "an index for each element"):
            task = test_scatter.scatter_task(*test_scatter.CASES[case], "add", "float32")
            yield space_for(task, board.hardware)
    elif rule == "steps":
        yield space_for(test_steps.task_of("running"), board.hardware)
    elif rule == "rowwise":
        yield space_for(fn.task(fn.softmax(20, 640)), board.hardware)
    elif rule == "injective":
        for function in (fn.addition(1, 7, 13, 16), fn.transpose((64, 48), (1, 0))):
            yield space_for(fn.task(function), board.hardware)


def _estimates(rule: str, learned: tuple[tuple[str, float], ...]) -> list[float]:
    found = []
    for number, space in enumerate(_spaces(rule)):
        moved = replace(space, hardware=replace(space.hardware, learned=learned))
        generator = random.Random(number)
        found += [moved.estimate_s(moved.sample(generator)) for _ in range(_DRAWS)]
    return found


@pytest.mark.parametrize("rule", RULES)
def test_every_declared_constant_moves_an_estimate(rule: str) -> None:
    plain = _estimates(rule, ())
    of_tiled = {constant.name for constant in RULES["tiled"].constants}
    others = of_tiled if rule in ("dot", "chain", "half_sums") else set()
    unread = [
        constant.name
        for constant in RULES[rule].constants
        if constant.name not in others
        and all(_estimates(rule, ((constant.name, move),)) == plain for move in (-1.0, 1.0))
    ]
    assert unread == []


def test_a_constant_is_scaled_from_where_it_has_no_effect() -> None:
    hardware = replace(fn.board().hardware, learned=(("a.share", -50.0), ("a.factor", -50.0)))
    assert EstimateConstant("a.share", 0.3).on(hardware) == pytest.approx(0.0)
    assert EstimateConstant("a.factor", 1.3, neutral=1.0).on(hardware) == pytest.approx(1.0)
    assert EstimateConstant("another", 0.3).on(hardware) == 0.3


def test_figures_move_for_estimates_only() -> None:
    board = fn.board()
    moves = (("hardware.DRAM", 0.5), ("hardware.frequency_hz", -0.5))
    hardware = replace(board.hardware, learned=moves)
    read = as_learned(hardware)
    assert read.frequency_hz < hardware.frequency_hz
    assert read.levels[-1].bandwidth_bytes_per_s > hardware.levels[-1].bandwidth_bytes_per_s
    task = fn.task(fn.dense(64, 512, 512))
    plain, moved = space_for(task, board.hardware), space_for(task, hardware)
    assert plain.decisions == moved.decisions
    values = plain.sample(random.Random(0))
    assert moved.legal(values) and plain.estimate_s(values) != moved.estimate_s(values)


def test_what_is_learned_makes_no_record_foreign() -> None:
    board = fn.board()
    profile = DeviceProfile("device", board, board.hardware, 1)
    taught = replace(board, hardware=replace(board.hardware, learned=(("tiled.ragged", 0.1),)))
    assert profile_data(profile) == profile_data(replace(profile, board=taught, hardware=taught.hardware))


def test_records_from_before_bfloat16_belong_to_the_same_profile() -> None:
    board = bfloat16_cases.board()
    mattr = [name for name in board.tvm_target["mattr"] if name != "+avx512bf16"]  # type: ignore[attr-defined]
    before = replace(
        board,
        tvm_target={**board.tvm_target, "mattr": mattr},
        hardware=replace(board.hardware, bfloat16=None),
    )
    assert before.tvm_target != board.tvm_target
    profiles = [DeviceProfile("device", one, one.hardware, 1) for one in (board, before)]
    data = [profile_data(profile) for profile in profiles]
    assert data[0] == data[1] and "bfloat16" not in data[0]["hardware"]


def test_each_parameter_is_there_once() -> None:
    constants = [constant for rule in RULES.values() for constant in rule.constants]
    names = [one.name for one in parameters_of(constants, fn.board().hardware)]
    assert len(names) == len(set(names)) > len(fn.board().hardware.levels)
