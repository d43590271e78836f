"""Kernels whose accesses are known, timed on modelled boards."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm.script import tirx as T

from host.build import build_kernel_library, target_for
from host.emulation.library import SharedLibrary
from research.modelled_boards.boards import ModelledBoard
from research.modelled_boards.listing import disassemble
from research.modelled_boards.processor import Caches, ModelledProcessor, ModelledTime


def reader(count: int, stride: int) -> tvm.tirx.PrimFunc:
    """Sums `count` floats, each `stride` floats after the one before."""

    @T.prim_func(s_tir=True)
    def read(source: T.Buffer((count * stride,), "float32"), total: T.Buffer((8,), "float32")):
        for i in range(count // 8):
            for lane in T.unroll(8):
                with T.sblock("sum"):
                    step = T.axis.reduce(count // 8, i)
                    j = T.axis.spatial(8, lane)
                    with T.init():
                        total[j] = T.float32(0)
                    total[j] = total[j] + source[(step * 8 + j) * stride]

    return read


class Kernels:
    """A library of kernels for one board.

    Args:
        board: that they are compiled for.
        functions: by name.
        folder: for the library.
    """

    def __init__(self, board: ModelledBoard, functions: dict[str, tvm.tirx.PrimFunc], folder: Path) -> None:
        declaration = board.declaration()
        path = build_kernel_library(functions, folder / f"{board.name}.so", target_for(declaration))
        self._library = SharedLibrary(path.read_bytes())
        self._listing = disassemble(path, declaration.architecture)
        self._arguments = {
            name: tuple((tuple(int(d) for d in p.shape), str(p.dtype)) for p in function.params)
            for name, function in functions.items()
        }

    def time(self, board: ModelledBoard, name: str, caches: Caches = Caches.COLD) -> ModelledTime:
        """One call on a board, which may differ from that of the library in all but its instructions."""
        processor = ModelledProcessor(board)
        return processor.time(self._library, self._listing, name, self._arguments[name], caches)
