"""Operators by all methods: `python -m benchmarks.operators --methods gensor,tree,library --json FILE`.

gensor and tree are first proposals, unmeasured; gensor10 is the best of the first ten by measurement;
metaschedule is the stock evolutionary search on the same function, metaschedule-own that search on our
space; random is the best of some random programs; library is ONNX Runtime. Finalists are verified and
measured together, in interleaved rounds. Searches go on from their records.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.operators.bench import Bench, Options, open_bench
from benchmarks.operators.comparison import compare_finalists
from benchmarks.operators.configurations import OPERATORS, Operator, select
from benchmarks.operators.figures import SCHEMA, entry_of, summary
from benchmarks.operators.methods import LIBRARY, METHODS, NoProgramError, Proposal
from benchmarks.operators.others import OTHERS
from benchmarks.operators.rank import Ranking, per_class, rank
from benchmarks.operators.subject import Subject, prepare
from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.static_model import defects_as
from host.errors import EdgeError, LoweringError
from research.metaschedule import register_intrinsics


def run_operator(bench: Bench, subject: Subject, methods: Sequence[str]) -> dict[str, Any]:
    """All methods on one operator; returns its entry of the results."""
    proposals: dict[str, Proposal] = {}
    failed: dict[str, str] = {}
    for name in methods:
        if name == LIBRARY:
            continue
        try:
            proposals[name] = METHODS[name](bench, subject)
        except (EdgeError, NoProgramError) as error:
            failed[name] = str(error)
    finalists = {name: proposal.program for name, proposal in proposals.items()}
    comparison = compare_finalists(bench, subject, finalists, LIBRARY in methods)
    return entry_of(subject, proposals, failed, comparison)


def benchmark(
    bench: Bench,
    operators: Sequence[Operator],
    methods: Sequence[str],
    programs: int,
    results: dict[str, Any],
    path: Path | None,
) -> None:
    """Every operator; what is known so far is written after each."""
    entries: dict[str, Any] = results["operators"]
    rankings: dict[str, list[Ranking]] = {}
    sizes = {operator.kind: sum(o.kind == operator.kind for o in operators) for operator in operators}
    for operator in operators:
        try:
            with defects_as(LoweringError, operator.name):
                subject = prepare(operator, bench.profile, bench.folder)
        except EdgeError as error:
            entry: dict[str, Any] = {"class": operator.kind, "error": str(error)[:300], "ratios": {}}
        else:
            entry = run_operator(bench, subject, methods)
            if programs:
                ranking = rank(bench, subject, -(-programs // sizes[operator.kind]))
                rankings.setdefault(operator.kind, []).append(ranking)
                entry["spearman"] = ranking.spearman if math.isfinite(ranking.spearman) else None
                entry["ranked_programs"] = len(ranking.measured_s)
        entries[operator.name] = entry
        results.update(summary(entries))
        results["spearman"] = per_class(rankings)
        show(operator.name, entry, methods)
        write_result(path, results)


def show(name: str, entry: dict[str, Any], methods: Sequence[str]) -> None:
    """One line for an operator, and the reasons of what failed."""
    if "error" in entry:
        sys.stdout.write(f"{name:<26} {entry['error']}\n")
        return
    cells = []
    for method in methods:
        result = entry.get(method, {})
        cells.append(f"{method} {result['us']:.1f}" if "us" in result else f"{method} -")
    ranking = f"  rank {entry['spearman']:.2f}" if entry.get("spearman") is not None else ""
    sys.stdout.write(f"{name:<26} us: {'  '.join(cells)}{ranking}\n")
    for method in methods:
        if "error" in entry.get(method, {}):
            sys.stdout.write(f"  {method}: {entry[method]['error']}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument(
        "--methods", default="gensor,tree,metaschedule,library", help=", ".join([*METHODS, LIBRARY])
    )
    parser.add_argument("--only", default="", help="comma-separated names or classes of operators, or others")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=256, help="of each search")
    parser.add_argument(
        "--rank", type=int, default=0, help="random programs per class for the rank correlation"
    )
    parser.add_argument("--random", type=int, default=64, help="programs of the random baseline")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--samples", type=int, default=Options.samples, help="of each measurement")
    parser.add_argument("--sample-ms", type=float, default=Options.sample_ms)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=Path, default=Options.records)
    add_json_option(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    methods = options.methods.split(",")
    unknown = set(methods) - {*METHODS, LIBRARY}
    if unknown:
        parser.error(f"no method {', '.join(sorted(unknown))}; there are {', '.join([*METHODS, LIBRARY])}")
    try:
        operators = select(options.only.split(","), (*OPERATORS, *OTHERS)) if options.only else OPERATORS
    except KeyError as error:
        parser.error(f"no operator {error.args[0]}")
    results = heading("benchmarks.operators", SCHEMA, arguments) | {"operators": {}}
    how = Options(
        threads=options.threads,
        trials=options.trials,
        seed=options.seed,
        rounds=options.rounds,
        samples=options.samples,
        sample_ms=options.sample_ms,
        random=options.random,
        records=options.records,
    )
    with (
        tempfile.TemporaryDirectory(prefix="edgetlm-operators-") as folder,
        open_bench(how, Path(folder)) as bench,
    ):
        results["options"] = {**vars(how), "records": str(how.records)}
        # Slow the more modules are loaded, so before anything else of TVM's search.
        register_intrinsics(bench.profile.board.architecture)
        benchmark(bench, operators, methods, options.rank, results, options.json)
    for pair, ratio in results["geomean"].items():
        sys.stdout.write(
            f"{pair}: {ratio:.3f} (worst {results['worst'][pair][1]:.2f}, {results['worst'][pair][0]})\n"
        )
    complete = all("us" in e.get(method, {}) for e in results["operators"].values() for method in methods)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
