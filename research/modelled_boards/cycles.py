"""Cycles of basic blocks by llvm-mca's model of a pipeline, to which all data is in the first cache."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

from research.modelled_boards.listing import Instruction, tool

_ADDRESS = re.compile(r"0x[0-9a-f]+ <[^>]*>|(?<=\s)0x[0-9a-f]{6,}$")
_OPTIONS = {"aarch64": ["-mtriple=aarch64"], "riscv64": ["-mtriple=riscv64", "-mattr=+m,+a,+f,+d,+c"]}
# Instructions that one call of the model goes through, as far as blocks are short enough for that.
_MODELLED = 20000


def cycles_of(
    blocks: Sequence[Sequence[Instruction]],
    architecture: str,
    processor: str,
    iterations: int | None = None,
    model: str = "llvm-mca",
) -> list[float]:
    """Cycles of one execution of each block, when it is executed again and again.

    Args:
        blocks: instructions of each.
        architecture: "aarch64" or "riscv64".
        processor: LLVM's name.
        iterations: how often each block is executed; None takes as many as a call has the time for.
        model: name of the program.

    Raises:
        FileNotFoundError: llvm-mca is missing.
        RuntimeError: it has no model of the processor, or refuses an instruction.
    """
    lines = []
    for number, block in enumerate(blocks):
        lines += [f"# LLVM-MCA-BEGIN {number}", *map(_assembly, (i.text for i in block))]
        lines.append(f"# LLVM-MCA-END {number}")
    iterations = iterations or max(10, min(100, _MODELLED // max(1, sum(map(len, blocks)))))
    command = [tool(model), *_OPTIONS[architecture], f"-mcpu={processor}"]
    command += [f"-iterations={iterations}", "-json", "-all-views=false", "-summary-view"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode or "error:" in done.stderr:
        raise RuntimeError(f"llvm-mca: {done.stderr.strip()[:300]}")
    regions = {int(r["Name"]): r["SummaryView"] for r in json.loads(done.stdout)["CodeRegions"]}
    return [float(regions[number]["TotalCycles"]) / iterations for number in range(len(blocks))]


def _assembly(text: str) -> str:
    """An instruction for the assembler: places in the program become a name."""
    return _ADDRESS.sub("target", text)
