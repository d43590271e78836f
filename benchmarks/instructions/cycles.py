"""Cycles of basic blocks by llvm-mca's model of a pipeline, to which all data is in the first cache."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

from benchmarks.instructions.listing import Run, tool
from targets import Board

# Share of the executed instructions whose blocks are modelled one by one; the rest costs as much as these do
# on the average.
_COVERED = 0.995
_ADDRESS = re.compile(r"0x[0-9a-f]+ <[^>]*>|(?<=\s)0x[0-9a-f]{6,}$")
_OPTIONS = {"aarch64": ["-mtriple=aarch64"], "riscv64": ["-mtriple=riscv64", "-mattr=+m,+a,+f,+d,+c"]}
# Instructions that one call of the model goes through, as far as blocks are short enough for that.
_MODELLED = 20000


def cycles_per_run(runs: Sequence[Run], board: Board) -> list[float]:
    """Cycles of one execution of each block, when it is executed again and again.

    Raises:
        FileNotFoundError: llvm-mca is missing.
        RuntimeError: it has no model of the board's processor, or refuses an instruction.
    """
    lines = []
    for number, run in enumerate(runs):
        lines += [f"# LLVM-MCA-BEGIN {number}", *map(_assembly, (i.text for i in run.instructions))]
        lines.append(f"# LLVM-MCA-END {number}")
    iterations = max(10, min(100, _MODELLED // max(1, sum(len(run.instructions) for run in runs))))
    command = [tool("llvm-mca"), *_OPTIONS[board.architecture], f"-mcpu={board.tvm_target['mcpu']}"]
    command += [f"-iterations={iterations}", "-json", "-all-views=false", "-summary-view"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode or "error:" in done.stderr:
        raise RuntimeError(f"llvm-mca: {done.stderr.strip()[:300]}")
    regions = {int(r["Name"]): r["SummaryView"] for r in json.loads(done.stdout)["CodeRegions"]}
    return [float(regions[number]["TotalCycles"]) / iterations for number in range(len(runs))]


def _assembly(text: str) -> str:
    """An instruction for the assembler: places in the program become a name."""
    return _ADDRESS.sub("target", text)


def estimated_cycles(runs: Sequence[Run], board: Board) -> float:
    """Cycles of all blocks: executions times cycles, the hottest one by one."""
    ordered = sorted(runs, key=lambda run: run.executed, reverse=True)
    total = sum(run.executed for run in ordered)
    hot: list[Run] = []
    covered = 0
    for run in ordered:
        if covered >= _COVERED * total:
            break
        hot.append(run)
        covered += run.executed
    modelled = sum(run.runs * cycles for run, cycles in zip(hot, cycles_per_run(hot, board), strict=True))
    return modelled * total / covered
