"""Records that hosts share, and boards of several hosts.

python -m benchmarks.scale [--records 1000000] [--json F]                     see `benchmarks.scale.records`
python -m benchmarks.scale --nodes 3 --boards 8 [--kill PART] [--json F]      see `benchmarks.scale.boards`

`--kill every` runs the tuning without a kill, then once for each part: {"runs": [...]}.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.result_file import add_json_option, heading, write_result
from benchmarks.scale.boards import PARTS, Trial, figures_of_each_part

SCHEMA = "edgetlm.scale/1"
EVERY = "every"
BOARDS_SCHEMA = "edgetlm.scale-boards/1"


def main() -> None:
    """Measure a large database of records, or a tuning with many boards, and print the figures."""
    parser = argparse.ArgumentParser(description="Figures of many records, or of many boards.")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many the database holds")
    parser.add_argument("--keep", type=Path, help="folder of a server whose records stay for the next run")
    parser.add_argument("--nodes", type=int, default=0, help="hosts of a Ray cluster on this machine")
    parser.add_argument("--boards", type=int, default=8, help="simulated boards, spread over the hosts")
    parser.add_argument("--trials", type=int, default=30, help="measurements of each board")
    parser.add_argument("--seconds", type=float, default=3.0, help="that a measurement takes")
    parser.add_argument("--kill", choices=(*PARTS, EVERY), help="what is killed in the middle of the tuning")
    add_json_option(parser)
    options = parser.parse_args()
    if options.nodes:
        about = heading("benchmarks.scale", BOARDS_SCHEMA)
        kill = None if options.kill == EVERY else options.kill
        trial = Trial(options.nodes, options.boards, options.trials, options.seconds, kill)
        figures = figures_of_each_part(trial) if options.kill == EVERY else trial.figures()
    else:
        from benchmarks.scale.records import figures_of

        about = heading("benchmarks.scale", SCHEMA)
        figures = figures_of(options.records, options.keep)
    print(json.dumps(figures, indent=1))
    write_result(options.json, {**about, **figures})
    for run in figures.get("runs", [figures]) if options.nodes else ():
        if run["kill"] and run["recovery_s"] is None:
            raise SystemExit(
                f"recovery_s is unknown: a board measured nothing after {run['kill']} was killed;"
                f" give it more --trials than {options.trials}"
            )


if __name__ == "__main__":
    main()
