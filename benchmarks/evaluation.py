"""`sdk tlm evaluate`, with a result file: `python -m benchmarks.evaluation [OPTIONS] --json FILE`.

All options but `--json` are those of that command.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.result_file import add_json_option, heading, write_result
from research.evaluation.evaluate import SCHEMA


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    add_json_option(parser, required=True)
    options, words = parser.parse_known_args()
    about = heading("benchmarks.evaluation", SCHEMA)
    with tempfile.TemporaryDirectory(prefix="edgetlm-evaluation-") as folder:
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "sdk.cli", "tlm", "evaluate", *words, "--json", str(figures)]
        status = subprocess.run(command, check=False).returncode
        if status == 0:
            write_result(options.json, json.loads(figures.read_text()) | about)
    return status


if __name__ == "__main__":
    sys.exit(main())
