"""Disassembled programs with the executions of every instruction: basic blocks and the hot loop."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_HEADING = re.compile(r"^[0-9a-f]+ <(?P<name>[^>]+)>:$")
_LINE = re.compile(r"^\s*(?P<address>[0-9a-f]+):\s+(?P<text>\S.*?)\s*$")
_TARGET = re.compile(r"0x([0-9a-f]+)(?: <[^>]*>)?\s*$")
_BRANCHES = {
    "aarch64": re.compile(r"(b|b\..+|cbn?z|tbn?z|br|ret|bl|blr)$"),
    "riscv64": re.compile(r"(b(eq|ne|lt|ge|gt|le)u?z?|j|jr|jal|jalr|ret|call|tail)$"),
}
_FUSED = re.compile(r"f(n?m(add|sub)(\.[sd])?|ml[as])$")
_FEATURES = {"aarch64": [], "riscv64": ["--mattr=+m,+a,+f,+d,+c"]}


@dataclass(frozen=True)
class Block:
    """Consecutive instructions that were executed together.

    Attributes:
        address: of the first instruction.
        bytes: length.
        runs: how often it was executed.
    """

    address: int
    bytes: int
    runs: int


@dataclass(frozen=True)
class Instruction:
    """One instruction of a program.

    Attributes:
        address: where it stands.
        text: as the disassembler writes it, tabs as blanks.
        branches: whether it ends a basic block.
        target: where it goes, None if that is not in it.
        function: the symbol that it belongs to.
    """

    address: int
    text: str
    branches: bool
    target: int | None
    function: str

    @property
    def fused(self) -> bool:
        """Whether it is a fused multiply-add."""
        return bool(_FUSED.match(self.text.split()[0]))


@dataclass(frozen=True)
class Run:
    """Instructions that were executed equally often, one after the other.

    Attributes:
        instructions: in order.
        runs: how often each was executed.
    """

    instructions: tuple[Instruction, ...]
    runs: int

    @property
    def executed(self) -> int:
        """Instructions executed in all runs together."""
        return self.runs * len(self.instructions)


def tool(name: str) -> str:
    """Path of one of LLVM's tools.

    Raises:
        FileNotFoundError: it is not installed; the message says how to get it.
    """
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: run scripts/system-packages")
    return found


def disassemble(program: Path, architecture: str) -> list[Instruction]:
    """All code of a program.

    Raises:
        FileNotFoundError: there is no disassembler.
        RuntimeError: it refuses the program.
    """
    command = [tool("llvm-objdump"), "-d", "--no-show-raw-insn", *_FEATURES[architecture], str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return parse(done.stdout, architecture)


def parse(listing: str, architecture: str) -> list[Instruction]:
    """Instructions of a disassembler's listing."""
    found, function = [], ""
    for line in listing.splitlines():
        heading = _HEADING.match(line)
        if heading:
            # Labels of the assembler are no functions.
            function = function if heading["name"].startswith(".L") else heading["name"]
        elif match := _LINE.match(line):
            text = " ".join(match["text"].split())
            branches = bool(_BRANCHES[architecture].match(text.split()[0]))
            target = _TARGET.search(text) if branches else None
            found.append(
                Instruction(
                    int(match["address"], 16),
                    text,
                    branches,
                    int(target[1], 16) if target else None,
                    function,
                )
            )
    return found


def executions(instructions: Sequence[Instruction], blocks: Sequence[Block]) -> dict[int, int]:
    """How often each instruction was executed, by address. A jump into a block makes another."""
    changes: dict[int, int] = defaultdict(int)
    for block in blocks:
        changes[block.address] += block.runs
        changes[block.address + block.bytes] -= block.runs
    edges = sorted(changes.items())
    counts, running, at = {}, 0, 0
    for instruction in instructions:
        while at < len(edges) and edges[at][0] <= instruction.address:
            running += edges[at][1]
            at += 1
        if running:
            counts[instruction.address] = running
    return counts


def runs_of(instructions: Sequence[Instruction], counts: Mapping[int, int]) -> list[Run]:
    """Basic blocks that were executed, in order of their addresses."""
    leaders = {instruction.target for instruction in instructions}
    found: list[Run] = []
    current: list[Instruction] = []
    for instruction in instructions:
        apart = instruction.address in leaders or not current or current[-1].branches
        if current and (apart or counts.get(instruction.address, 0) != counts[current[0].address]):
            found.append(Run(tuple(current), counts[current[0].address]))
            current = []
        if counts.get(instruction.address):
            current.append(instruction)
    if current:
        found.append(Run(tuple(current), counts[current[0].address]))
    return found


def hot_loop(instructions: Sequence[Instruction], counts: Mapping[int, int]) -> Run | None:
    """The innermost loop in which most instructions were executed; None where nothing loops.

    A loop is what lies between a branch and its target before it. Of paths through its body the one counts
    that is taken more often than not.
    """
    spans = [
        (instruction.target, instruction.address)
        for instruction in instructions
        if instruction.target is not None
        and instruction.target <= instruction.address
        and counts.get(instruction.address)
    ]
    loops = []
    for first, last in spans:
        if any((a, b) != (first, last) and first <= a and b <= last for a, b in spans):
            continue
        body = [i for i in instructions if first <= i.address <= last and counts.get(i.address)]
        most = max(counts[i.address] for i in body)
        path = tuple(i for i in body if 2 * counts[i.address] > most)
        loops.append((sum(counts[i.address] for i in body), Run(path, most)))
    return max(loops, key=lambda loop: loop[0])[1] if loops else None
