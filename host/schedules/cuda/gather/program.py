"""The program of elements at computed places: a thread has neighbours, loads vectors and stores one."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from host.schedules.cuda.epilogue import replaced
from host.schedules.cuda.nest import bound, digits, put_into
from host.schedules.cuda.vectors import Lanes, under


@dataclass(frozen=True)
class Threads:
    """How a program divides its work.

    Attributes:
        vector: neighbours of a thread.
        threads: of a block.
    """

    vector: int
    threads: int

    def put_into(self, schedule: s_tir.Schedule, block: s_tir.SBlock) -> None:
        """Puts the program in the place of everything that the function does.

        Args:
            schedule: of the function.
            block: all that is left of it, whose last axis has whole vectors.
        """
        lanes = Lanes(self.vector, "gather")
        extents = [int(axis.dom.extent) for axis in block.iter_vars]
        extents[-1] //= self.vector
        total = 1
        for extent in extents:
            total *= extent
        thread, number = tirx.Var("thread", "int32"), tirx.Var("block", "int32")
        own, grid = number * self.threads + thread, -(-total // self.threads)
        places = digits(own, extents)
        places[-1] = places[-1] * self.vector + lanes.variable
        variables = [axis.var for axis in block.iter_vars]
        store = block.body
        statements, (value,) = lanes.loaded([replaced(store.value, variables, places)])
        there = [replaced(index, variables, places) for index in store.indices]
        body = under(
            [*statements, *lanes.stored(store.buffer, there, value)],
            [own < total] if total % self.threads else [],
        )
        region = s_tir.SBlock([], [], [], "gather", body, None, lanes.buffers)
        axes = ((thread, self.threads, "threadIdx.x"), (number, grid, "blockIdx.x"))
        put_into(schedule, bound(s_tir.SBlockRealize([], True, region), axes))
