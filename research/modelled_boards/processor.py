"""The time of kernels on a modelled board: executed blocks by llvm-mca, accesses by simulated caches.

A kernel runs twice in Unicorn. The first run counts its blocks. llvm-mca gives the cycles of the blocks as if
all data were in the first cache. The second run has a clock, to which blocks add their cycles and accesses
what dispatch waits for them (timeline.c). One core, fp32 and int8, no vectors of RISC-V.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from host.emulation.kernel_run import ArgumentSpec, KernelRun
from host.emulation.library import SharedLibrary
from host.errors import EngineError
from research.modelled_boards.boards import ModelledBoard
from research.modelled_boards.cycles import cycles_of
from research.modelled_boards.listing import Block, Instruction
from research.modelled_boards.timeline import BlockCounter, Elapsed, Timeline

# The version of LLVM whose pipelines the boards name: others have other cycles.
PIPELINES = "llvm-mca-19"
# How often a block is executed for its cycles.
_ITERATIONS = 40
# Share of the executed instructions whose blocks are modelled one by one; the rest costs as much as these do
# on the average.
_COVERED = 0.995


class Caches(Enum):
    """The content of the caches when a kernel is called.

    Attributes:
        COLD: nothing.
        PRODUCED: the first argument, as the kernel before has written it, as far as it fits: how a kernel
            finds them inside of a model, where weights and other inputs have been displaced since.
        WARM: what an equal call has left.
    """

    COLD = "cold"
    PRODUCED = "produced"
    WARM = "warm"


@dataclass(frozen=True)
class ModelledTime:
    """The modelled time of one call of a kernel.

    Attributes:
        seconds: of the call.
        elapsed: in cycles and lines.
        instructions: executed ones.
    """

    seconds: float
    elapsed: Elapsed
    instructions: int


class ModelledProcessor:
    """One core of a modelled board.

    Args:
        board: which.
    """

    def __init__(self, board: ModelledBoard) -> None:
        self.board = board
        self._architecture = board.declaration().architecture
        # Cycles by the text of a block: programs of a task share many.
        self._known: dict[tuple[str, ...], float] = {}

    def time(
        self,
        library: SharedLibrary,
        listing: Sequence[Instruction],
        kernel: str,
        arguments: Sequence[ArgumentSpec],
        caches: Caches = Caches.PRODUCED,
    ) -> ModelledTime:
        """The time of one call of a kernel.

        Args:
            library: that holds it.
            listing: of the library, by address.
            kernel: name of the function.
            arguments: shape and dtype of each.
            caches: what they hold before.

        Raises:
            EngineError: the kernel cannot be run.
        """
        first = KernelRun(library, kernel)
        counter = BlockCounter(first, library)
        first.call(first.place(arguments))
        blocks = counter.blocks()
        contents = _contents(blocks, listing)
        cycles = self._cycles(blocks, contents)
        run = KernelRun(library, kernel)
        lengths = {block.address: len(contents[block.address]) for block in blocks}
        timeline = Timeline(self.board, run, library, cycles, lengths)
        placed = run.place(arguments)
        if caches is Caches.PRODUCED and run.tensors:
            timeline.produce(*run.tensors[0])
        elif caches is Caches.WARM:
            run.call(placed)
            timeline.elapsed()
        run.call(placed)
        elapsed = timeline.elapsed()
        executed = sum(block.runs * lengths[block.address] for block in blocks)
        return ModelledTime(elapsed.cycles / self.board.frequency_hz, elapsed, executed)

    def _cycles(
        self, blocks: Sequence[Block], contents: dict[int, tuple[Instruction, ...]]
    ) -> dict[int, float]:
        """Cycles of each block, by address."""
        size = {block.address: len(contents[block.address]) for block in blocks}
        total = sum(block.runs * size[block.address] for block in blocks)
        hot, covered = [], 0
        for block in sorted(blocks, key=lambda one: -one.runs * size[one.address]):
            if covered >= _COVERED * total:
                break
            hot.append(block)
            covered += block.runs * size[block.address]
        texts = {block.address: tuple(one.text for one in contents[block.address]) for block in hot}
        new = {texts[block.address]: contents[block.address] for block in hot}
        new = {text: content for text, content in new.items() if text not in self._known}
        if new:
            modelled = cycles_of(
                list(new.values()), self._architecture, self.board.pipeline, _ITERATIONS, PIPELINES
            )
            self._known.update(zip(new, modelled, strict=True))
        found = {block.address: self._known[texts[block.address]] for block in hot}
        mean = sum(block.runs * found[block.address] for block in hot) / covered
        return {block.address: found.get(block.address, mean * size[block.address]) for block in blocks}


def _contents(blocks: Sequence[Block], listing: Sequence[Instruction]) -> dict[int, tuple[Instruction, ...]]:
    """Instructions of each block, by address."""
    addresses = [one.address for one in listing]
    found = {}
    for block in blocks:
        first = bisect.bisect_left(addresses, block.address)
        last = bisect.bisect_left(addresses, block.address + block.bytes)
        found[block.address] = tuple(listing[first:last])
        if not found[block.address] or addresses[first] != block.address:
            raise EngineError(f"the disassembler has no instruction at {block.address:#x} of the library")
    return found
