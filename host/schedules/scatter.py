"""The extents of a scatter's function, for the rules of CPUs and GPUs."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tvm import s_tir, tirx

from host.lowering.ops.sequential.scattering import OPERATION, STATED
from host.schedules.workload import Workload


@dataclass(frozen=True)
class Scatter:
    """The extents of a scatter.

    Attributes:
        outer, size, inner: of the data, (O, A, I).
        count: updates along A, M.
        places: extents of the places: 1 or O, 1 or M, 1 or I, then numbers of a place.
        reduction: how an update is combined with what is there.
        strides: of the numbers of a place.
        dtype: of the data.
    """

    outer: int
    size: int
    inner: int
    count: int
    places: tuple[int, ...]
    reduction: str
    strides: tuple[int, ...]
    dtype: str

    @property
    def lists(self) -> int:
        """Places that have a list of updates of their own."""
        return self.places[0] * self.size * self.places[2]

    @property
    def entries(self) -> int:
        """Updates that are in lists."""
        return self.places[0] * self.count * self.places[2]

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.outer * self.size * self.inner

    @property
    def by_row(self) -> bool:
        """Whether all updates of a row, along I, have one place."""
        return self.places[2] == 1


def is_scatter(workload: Workload) -> bool:
    """Whether a workload is the function of a scatter: others may have a block of that name."""
    [*others, stage] = workload.stages
    return not others and stage.name == OPERATION and STATED in dict(stage.stated)


def scatter_of(workload: Workload) -> Scatter:
    """The extents of the function, with what it states beside them; `is_scatter` holds."""
    [stage] = workload.stages
    data, places, updates = stage.reads
    outer, size, inner = data.shape
    stated = json.loads(dict(stage.stated)[STATED])
    return Scatter(
        outer,
        size,
        inner,
        updates.shape[1],
        places.shape,
        stated["reduction"],
        tuple(stated["strides"]),
        data.type.name,
    )


def scatter_buffers(schedule: s_tir.Schedule) -> dict[str, tirx.Buffer]:
    """The arguments of the function by what they are: data, places, updates and result."""
    block = schedule.get(schedule.get_sblock(OPERATION))
    names = ("data", "places", "updates", "result")
    return dict(zip(names, (one.source for one in (*block.reads, *block.writes)), strict=True))
