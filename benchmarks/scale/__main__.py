"""Records that hosts share, and boards of several hosts.

python -m benchmarks.scale [--records 1000000] [--json F]                     see `records`
python -m benchmarks.scale --nodes 3 --boards 8 [--kill PART] [--json F]      see `boards`
python -m benchmarks.scale --many 1000 [--minutes 10] [--json F]              see `many_boards`
python -m benchmarks.scale --simulate [--json F]                              see `simulation`

Modules are of `benchmarks.scale`.
`--kill every` runs the tuning without a kill, then once for each part: {"runs": [...]}. With `--json F`, each
run is kept in F.runs as soon as it is done, and the same command goes on after the last one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.result_file import RESULTS, add_json_option, heading, read_result, write_result
from benchmarks.scale.boards import PARTS, Trial, figures_of_each_part

SCHEMA = "edgetlm.scale/1"
BOARDS_SCHEMA = "edgetlm.scale_boards/2"
MANY_SCHEMA = "edgetlm.scale_many/1"
SIMULATED_SCHEMA = "edgetlm.scale_simulated/1"
EVERY = "every"


def main() -> None:
    """Measure a large database of records, or many boards, and print the figures."""
    options = _options()
    schema, measure = SCHEMA, _records
    if options.simulate:
        schema, measure = SIMULATED_SCHEMA, _simulated
    elif options.many:
        schema, measure = MANY_SCHEMA, _many
    elif options.nodes:
        schema, measure = BOARDS_SCHEMA, _boards
    about = heading("benchmarks.scale", schema)
    figures = measure(options)
    print(json.dumps(figures, indent=1))
    write_result(options.json, {**about, **figures})
    if kept := _kept(options.json):
        kept.unlink(missing_ok=True)
    for run in figures.get("runs", [figures]):
        if run.get("kill") and run["recovery_s"] is None:
            raise SystemExit(
                f"recovery_s is unknown: a board measured nothing after {run['kill']} was killed;"
                f" give it more --trials than {options.trials}"
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Figures of many records, or of many boards.")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many the database holds")
    parser.add_argument("--keep", type=Path, help="folder of a server whose records stay for the next run")
    parser.add_argument("--nodes", type=int, default=0, help="hosts of a Ray cluster on this machine")
    parser.add_argument("--boards", type=int, default=8, help="simulated boards, spread over the hosts")
    parser.add_argument("--trials", type=int, default=25, help="measurements of each board")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a measurement takes")
    parser.add_argument("--kill", choices=(*PARTS, EVERY), help="what is killed in the middle of the tuning")
    parser.add_argument("--many", type=int, default=0, help="simulated boards that one command uses")
    parser.add_argument("--minutes", type=float, default=10.0, help="for which they measure")
    parser.add_argument(
        "--simulate", action="store_true", help="1 to 100,000 boards, by the costs in the results of before"
    )
    add_json_option(parser)
    return parser.parse_args()


def _records(options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.scale.records import figures_of

    return figures_of(options.records, options.keep)


def _boards(options: argparse.Namespace) -> dict[str, Any]:
    kill = None if options.kill == EVERY else options.kill
    trial = Trial(options.nodes, options.boards, options.trials, options.seconds, kill)
    if options.kill != EVERY:
        return trial.figures()
    return figures_of_each_part(trial, _kept(options.json))


def _kept(json: Path | None) -> Path | None:
    """Where the runs are kept until all are done."""
    return json.with_name(f"{json.name}.runs") if json else None


def _many(options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.scale.many_boards import Fleet

    return Fleet(options.many, options.seconds, options.minutes).figures()


def _simulated(options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.scale.simulation import costs_of, figures_of

    many, records = (read_result(RESULTS / f"{name}.json") for name in ("scale_many", "scale"))
    return figures_of(costs_of(many.figures, records.figures))


if __name__ == "__main__":
    main()
