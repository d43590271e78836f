"""The operator benchmark on one tiny operator: all methods, verification, records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tvm import te

from benchmarks.operators.__main__ import run_operator
from benchmarks.operators.bench import Bench, Options, Program, open_bench
from benchmarks.operators.comparison import TOLERANCE, compare_finalists
from benchmarks.operators.configurations import Operator
from benchmarks.operators.methods import LIBRARY, METHODS
from benchmarks.operators.rank import rank
from benchmarks.operators.subject import Subject, prepare

TINY = Operator("tiny", "matmul", "test", "MatMul", ((24, 32),), ((32, 64),))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    options = Options(
        trials=6,
        rounds=2,
        samples=3,
        sample_ms=0.1,
        random=3,
        records=tmp_path / "records",
        cost_model="random",
    )
    folder = tmp_path / "libraries"
    folder.mkdir()
    with open_bench(options, folder) as opened:
        yield opened


@pytest.fixture
def subject(bench: Bench) -> Subject:
    return prepare(TINY, bench.profile, bench.folder)


def test_all_methods_on_one_operator(bench: Bench, subject: Subject) -> None:
    entry = run_operator(bench, subject, [*METHODS, LIBRARY])
    for method in (*METHODS, LIBRARY):
        assert entry[method]["us"] > 0, entry[method]
        assert entry[method]["max_rel_err"] <= TOLERANCE
    assert entry["gflop"] == pytest.approx(2 * 24 * 32 * 64 / 1e9)
    for other in ("tree", "metaschedule", "metaschedule-own", "random", LIBRARY):
        assert entry["ratios"][f"gensor/{other}"] > 0
    assert entry["gensor10"]["measured"] > 1
    assert entry["metaschedule"]["trials"] == entry["metaschedule-own"]["trials"] == 6
    assert set(entry["metaschedule-own"]["decisions"]) == set(entry["gensor"]["decisions"])


def test_searches_go_on_from_their_records(bench: Bench, subject: Subject) -> None:
    for method in ("metaschedule", "metaschedule-own"):
        first = METHODS[method](bench, subject)
        assert first.details["trials_now"] == 6
        again = METHODS[method](bench, subject)
        assert (again.details["trials"], again.details["trials_now"]) == (6, 0)
        assert again.details["search_s"] == first.details["search_s"]
        more = METHODS[method](replace(bench, options=replace(bench.options, trials=8)), subject)
        assert (more.details["trials"], more.details["trials_now"]) == (8, 2)


def test_a_wrong_program_drops_out(bench: Bench, subject: Subject) -> None:
    [(rows, depth), weight, out] = [shape for shape, _ in subject.arguments]
    a = te.placeholder((rows, depth), name="A")
    w = te.placeholder(weight, name="W")
    c = te.compute(out, lambda i, j: a[i, j % depth] * w[j // weight[2], 0, j % weight[2]], name="C")
    wrong = te.create_prim_func([a, w, c])
    right = METHODS["gensor"](bench, subject).program
    comparison = compare_finalists(
        bench, subject, {"wrong": Program(wrong, {}), "gensor": right}, library=False
    )
    assert "wrong: off by" in comparison.failed["wrong"]
    assert set(comparison.rounds_s) == {"gensor"}


def test_ranking_measures_random_programs(bench: Bench, subject: Subject) -> None:
    ranking = rank(bench, subject, 5)
    assert len(ranking.estimated_s) == len(ranking.measured_s) > 2
    assert -1.0 <= ranking.spearman <= 1.0
