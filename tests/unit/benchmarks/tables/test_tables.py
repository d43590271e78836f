"""Tables of the documents: made from the committed results, and never out of date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.reproduce import RUNS
from benchmarks.reproduce import main as reproduce
from benchmarks.result_file import RESULTS, Result, read_result, write_result
from benchmarks.tables import TABLES, device, gpu, models, operators, scale
from benchmarks.tables.blocks import documents, names_in, updated
from benchmarks.tables.language_models import language_models
from benchmarks.tables.table import Table, markdown, significant
from host.errors import UserError
from tests.unit.benchmarks.tables.test_result_file import CONTENT


def result(tmp_path: Path, **figures: Any) -> Result:
    write_result(tmp_path / "result.json", {**CONTENT, **figures})
    return read_result(tmp_path / "result.json")


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_documents_are_what_their_results_make_of_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert updated(text, TABLES) == text, "run python -m benchmarks.tables"


def test_every_table_stands_in_one_document_and_every_result_in_a_table() -> None:
    shown = [name for path in documents() for name in names_in(path.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(TABLES)
    assert {one for table in TABLES.values() for one in table.results} == set(RUNS)
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(RUNS)


def test_a_block_is_rewritten_and_the_rest_is_kept(tmp_path: Path) -> None:
    write_result(tmp_path / "one.json", CONTENT)
    tables = {"example": Table(("one",), lambda found: markdown(["a"], [[found.figures["figures"]["a"]]]))}
    text = "before\n<!-- table example -->\nold\n<!-- end of table -->\nafter\n"
    made = updated(text, tables, tmp_path)
    assert made.startswith("before\n<!-- table example -->\n| a |\n|---|\n| 1.5 |\n")
    assert "commit 0123456789+, a processor, 2 cores" in made
    assert made.endswith("<!-- end of table -->\nafter\n") and "old" not in made
    assert updated(made, tables, tmp_path) == made


def test_figures_without_their_result_are_kept_under_a_line_that_says_so(tmp_path: Path) -> None:
    tables = {"example": Table(("agent", "overhead"), lambda *_: [])}
    text = "<!-- table example -->\n| old |\n<!-- end of table -->\n"
    made = updated(text, tables, tmp_path)
    minutes = RUNS["agent"].minutes + RUNS["overhead"].minutes
    assert "Without a committed result" in made and "| old |" in made
    assert f"`python -m benchmarks.reproduce agent overhead` makes it, in about {minutes} minutes" in made
    assert updated(made, tables, tmp_path) == made


def test_an_unknown_table_is_an_error() -> None:
    with pytest.raises(UserError, match="no table 'absent'"):
        updated("<!-- table absent -->\n<!-- end of table -->", TABLES)


def test_the_least_of_the_summary_is_the_least_of_the_rows(tmp_path: Path) -> None:
    found = {
        "conv_3x3_64_56": {"gensor": {"us": 10.0}, "library": {"us": 40.0}},
        "gemv_768x3072": {"gensor": {"us": 8.0}, "library": {"us": 6.0}, "tree": {"error": "none"}},
    }
    figures = result(tmp_path, operators=found, construct={"gensor": {"max_s": 0.2, "geomean_s": 0.1}})
    assert operators.times(figures)[2:] == [
        "| conv_3x3_64_56 | 10 | - | 40 |",
        "| gemv_768x3072 | 8 | - | 6 |",
    ]
    row = "| Gensor / ONNX Runtime (0.90; none under 0.5) | 1.73 | 0.75 | 0.75, gemv_768x3072 |"
    assert operators.summary(figures)[2] == row
    assert operators.slower_than_library(figures)[2] == "| gemv_768x3072 | 0.75 |"


@pytest.mark.parametrize(
    ("version", "times"), [(1, "- | 7.0 ms"), (2, "7.0 ms | 9.0 ms")], ids=["answers alone", "both"]
)
def test_the_first_results_of_killed_parts_know_the_time_to_the_answer_alone(
    tmp_path: Path, version: int, times: str
) -> None:
    run = {"kill": "head", "speedup": 7.5, "idle_share": 0.02, "lost": 0, "duplicated": 0}
    run |= {"measured_again": 1, "recovery_s": 41.0, "overhead_ms": 7.0}
    run |= {} if version == 1 else {"answer_ms": 9.0}
    found = result(tmp_path, schema=f"edgetlm.scale_boards/{version}", runs=[run])
    assert scale.killed_parts(found)[2:] == [f"| head | 7.50 | 2.0% | {times} | 0 | 0 | 1 | 41 s |"]


def test_models_beside_their_peers(tmp_path: Path) -> None:
    entry = {
        "latency_ms": {"edgetlm": 2.0, "onnxruntime": 3.0, "openvino": 2.5},
        "speedup": {"onnxruntime": 1.5, "openvino": 1.25},
        "bounds": {"onnxruntime": [1.4, 1.6]},
        "max_rel_err": 3e-7,
        "seconds": {"total": 41.2},
        "peak_rss_mb": 772.3,
    }
    table = models.end_to_end(result(tmp_path, models={"a": entry, "b": {"error": "exit code 1"}}))
    assert table[2] == "| a | 2 | 3 | - | 2.5 | 1.50, 1.40 to 1.60 | 1.25 | 3e-07 | 41 | 772 |"
    assert table[3].startswith("| b | exit code 1 |")
    assert len({line.count("|") for line in table}) == 1


def test_each_document_has_the_machine_that_it_ran_on(tmp_path: Path) -> None:
    def ran(cpu: str, cores: int, *outcomes: str) -> dict[str, Any]:
        statements = [{"outcome": one, "cpu_s": 1.2} for one in outcomes]
        about = {"date": "2026-11-22T13:26:44+00:00", "commit": "0123456789abcdef"}
        return about | {"machine": {"cpu": cpu, "cores": cores}, "statements": statements}

    found = {"a.md": ran("first", 2, "run", "replaced", "replaced"), "b.md": ran("second", 4, "declared")}
    count = {"run": 1, "replaced": 2, "declared": 1, "failed": 0}
    assert models.documents(result(tmp_path, documents=found, count=count))[2:] == [
        "| `a.md` | 1 | 2 | 0 | 0 | 4 | 2026-11-22 | 0123456789 | first, 2 cores |",
        "| `b.md` | 0 | 0 | 1 | 0 | 1 | 2026-11-22 | 0123456789 | second, 4 cores |",
        "| all | 1 | 2 | 1 | 0 | 5 |  |  |  |",
    ]


def test_each_row_of_machine_code_has_the_commit_that_made_it_and_its_plus(tmp_path: Path) -> None:
    row = {"model": "net", "target": "nx", "arch": "sm_72", "cpu": "first", "commit": "0123456789abcdef"}
    changed = {**row, "cpu": "second", "commit": row["commit"] + "+", "error": "it does not compile"}
    made = {"disassembled": False, "spill_bytes": 0, "bank_conflicts": 0, "shared_accesses": 0, "kernels": 2}
    made |= {"compile_s": 1.0, "compile_processor_s": 0.5}
    table = gpu.architectures(result(tmp_path, entries=[{**row, **made}, changed]))
    assert table[2].endswith("| 0123456789, first |") and table[3].endswith("| 0123456789+, second |")


def test_a_bundle_from_cold_has_its_time_and_size(tmp_path: Path) -> None:
    row = {"model": "net", "wall_s": 40.04, "cpu_s": 61.5, "peak_bytes": 1_250_000_000, "bundle_bytes": 52e6}
    about = {"target": "jetson_orin_nano", "processor": "gpu", "dtype": "fp16"}
    assert gpu.cold(result(tmp_path, rows=[row], **about))[2:] == [
        "| net | jetson_orin_nano, gpu, fp16 | 40.0 | 61.5 | 1.25 | 52.0 |"
    ]


def test_plans_beside_the_plan_of_the_passes(tmp_path: Path) -> None:
    shown = {"plan": "plan 1", "speed": {"value": 1.002, "low": 0.991, "high": 1.013}}
    stays = {"plan": "plan of the passes", "speed": {"value": 1.0}}
    found = {"net": {"first_by_estimate": shown, "best_measured_by_estimate": stays}}
    summary = {"first_by_estimate": 1.002, "best_measured_by_estimate": 1.0}
    assert models.plans(result(tmp_path, models=found, summary=summary))[2:] == [
        "| net | 1.002, 0.991 to 1.013 | 1.000 | - | - |",
        "| geometric mean | 1.002 | 1.000 | - | - |",
    ]


def test_what_kinds_of_decisions_gain_is_one_over_the_speed_without_them(tmp_path: Path) -> None:
    slower = {"plan": "plan 1", "speed": {"value": 0.8, "low": 0.5, "high": 1.0}}
    found = {"net": {"first_by_without bands": slower}, "other": {"plans": []}}
    assert models.plans_without(result(tmp_path, models=found)) == [
        "| model | bands |",
        "|---|---|",
        "| net | 1.250, 1.000 to 2.000 |",
        "| other | - |",
        "| geometric mean | 1.118 |",
    ]


def test_language_models_beside_their_peers(tmp_path: Path) -> None:
    entry = {
        "verified": True,
        "decode_tokens_s": {"edgetlm": 130.44, "llama.cpp": 107.1},
        "prefill_tokens_s": {"edgetlm": 598.2, "llama.cpp": 693.8},
        "speedup": {"decode": 1.347, "prefill": 0.848},
        "bounds": {"decode": [1.169, 1.552], "prefill": [None, None]},
        "first_token_s": {"edgetlm": 1.4185, "llama.cpp": 1.1631},
        "peak_memory_mb": {"edgetlm": 239.3, "llama.cpp": 255.6},
        "kl_divergence": {"edgetlm": 0.0238, "llama.cpp": 0.0267},
        "peer_agrees": {"llama.cpp": False},
        "bandwidth_share": 0.397,
        "peer_bandwidth_share": {"llama.cpp": 0.326},
        "prefill_peak_share": 0.763,
        "notes": {"other": "no compiler"},
    }
    table = language_models(result(tmp_path, models={"a": entry, "b": {"error": "no memory"}}))
    assert table[2:] == [
        "| a, ours | 130 | - | 598 | 1.42 | 239 | 2.4e-02 | yes | 40% | 76% |",
        "| a, llama.cpp | 107 | - | 694 | 1.16 | 256 | 2.7e-02 | no | 33% |  |",
        "| a, ours to the best other | 1.35, 1.17 to 1.55 | - | 0.85 |  |  |  |  |  |  |",
        "| a, other | left out: no compiler |  |  |  |  |  |  |  |  |",
        "| b | no memory |  |  |  |  |  |  |  |  |",
    ]


def test_proposers_by_measurements_a_task(tmp_path: Path) -> None:
    budgets = {"0": {"tlm": 1.0034, "random": None}, "10": {"tlm": 1.01, "random": 0.93}}
    reached = {"seconds": 5.3, "times_less_than_whole_cpu": 196.0, "times_less_than_reached_cpu": 163.2}
    search = {"whole_s": 2080.0, "whole_cpu_s": 1042.0, "reached_s": 1744.0, "reached_cpu_s": 867.0}
    tuning = {"reached": {"tlm": reached}, "search": search}
    networks = {"net": {"budgets": budgets, "coverage": 0.706, "tuning": tuning}, "bad": {"error": "none"}}
    evaluated = result(tmp_path, networks=networks)
    assert models.evaluation(evaluated)[2:] == [
        "| net (70.6% of its time), 0 | 1.003 | - |",
        "| net (70.6% of its time), 10 | 1.010 | 0.930 |",
    ]
    tuned = result(tmp_path, networks={"net": {"budgets": {"10": {"tlm": 1.02}}}})
    assert models.new_board(evaluated, tuned)[3] == "| net (70.6% of its time), 10 | 1.010 | 0.930 | 1.020 |"
    seconds = models.seconds_to_speed(evaluated)
    assert seconds[2:] == ["| net | 5.3 | 1,042 (2,080) | 867 (1,744) | 196, 163 |"]


def test_the_agent_beside_its_limits(tmp_path: Path) -> None:
    limits = {"idle_share": 0.01, "daemon_bytes": 30e6, "executor_bytes": 60e6, "overhead_s": 5e-3}
    figures = {"idle_share": 0.0, "idle_share_with_session": 0.0022, "daemon_bytes": 22e6, "seconds": 30.0}
    table = device.agent(result(tmp_path, **figures, executor_bytes=36e6, overhead_s=6e-4, limits=limits))
    assert "| resident memory, agent | 22 MB | 30 MB |" in table
    assert "| host to agent, overhead of a measurement | 0.6 ms | 5 ms |" in table


def test_numbers_have_so_many_digits() -> None:
    assert [significant(value) for value in (0.0194, 6.153, 103.4, 1234.5, 98765.0)] == [
        "0.0194",
        "6.15",
        "103",
        "1230",
        "98800",
    ]


def test_what_would_be_run_is_listed_and_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(["--list", "agent", "emulation"]) == 0
    text = capsys.readouterr().out
    assert "agent (about 2 min, on a quiet machine): python -m benchmarks.agent" in text
    assert "after scripts/system-packages" in text
    assert RUNS["agent"].words()[1:] == [
        "-m",
        "benchmarks.agent",
        "--json",
        "benchmarks/results/agent.json",
    ]
    with pytest.raises(SystemExit):
        reproduce(["absent"])
