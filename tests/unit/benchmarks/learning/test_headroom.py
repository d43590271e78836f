"""How far constructed programs are from the best known ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.headroom import figures_of, headrooms, kind_of, main
from host.errors import UserError
from research.collection.dataset import MeasuredProgram


def _program(task: str, rows: int, seconds: float, first: bool = False) -> MeasuredProgram:
    name = "fused_depthwise_conv_add" if task == "a" else "fused_dense_1"
    return MeasuredProgram(
        "net",
        task,
        name,
        "tiled",
        1,
        {"rows": rows},
        "gensor" if first else "uniform",
        (seconds,),
        first=first,
    )


def _task(task: str, first_s: float) -> list[MeasuredProgram]:
    return [_program(task, 0, first_s, True), *(_program(task, rows, 1.0 + rows) for rows in range(1, 17))]


def test_headroom_is_the_constructed_program_beside_the_fastest_and_small_ones_are_counted() -> None:
    few = _task("c", 1.0)[:10]
    unknown = [_program("d", rows, 1.0 + rows) for rows in range(1, 20)]
    found = headrooms("board", [*_task("a", 3.0), *_task("b", 2.02), *few, *unknown])
    assert [(one.task, one.headroom, one.best_by) for one in found] == [
        ("a", 1.5, "uniform"),
        ("b", pytest.approx(1.01), "uniform"),
    ]
    figures = figures_of(found, 1.02)
    assert set(figures) == {"depthwise convolution", "dense product", "all"}
    assert figures["dense product"]["board"]["below"] == 1 and figures["all"]["all"]["below"] == 1
    assert figures["all"]["all"]["n"] == 2 and figures["all"]["all"]["value"] == pytest.approx(
        1.2309, rel=1e-3
    )


def test_a_program_that_was_timed_often_has_the_mean_of_its_times() -> None:
    again = [_program("a", 1, 1.0), _program("a", 1, 3.0)]
    assert headrooms("board", [*_task("a", 3.0), *again])[0].headroom == 1.5


def test_kinds_are_told_by_names_and_nothing_to_judge_is_an_error(tmp_path: Path) -> None:
    assert [kind_of(name) for name in ("fused_depthwise_conv_add", "fused_conv_add", "fused_softmax_1")] == [
        "depthwise convolution",
        "convolution",
        "softmax",
    ]
    assert kind_of("fused_add") == "others"
    with pytest.raises(UserError, match="no task has enough"):
        main(["--modelled", str(tmp_path)])
    with pytest.raises(UserError, match="BOARD=FILE"):
        main(["--measured", "avx2"])
