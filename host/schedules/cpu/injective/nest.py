"""The loops of a program of the `injective` rule."""

from __future__ import annotations

from host.schedules.cpu.traffic import Loop
from host.schedules.workload import Stage, Workload


def strip_axis(workload: Workload, output: Stage) -> int | None:
    """The axis of an output along which an input is contiguous while the output is not.

    It is the other side of a transpose. Stages before the output are inlined into its loops: theirs are
    the same axes where they have the same extents.

    Args:
        workload: the task.
        output: the stage whose loops are scheduled.
    """
    last = len(output.axes) - 1
    for stage in workload.stages:
        if not same_axes(stage, output):
            continue
        for access in stage.reads:
            if access.strides[last] > 1:
                for axis in range(last):
                    if access.strides[axis] == 1 and stage.axes[axis].extent > 1:
                        return axis
    return None


def same_axes(stage: Stage, output: Stage) -> bool:
    """Whether a stage has the axes of the output, so that both have the same loops."""
    return [axis.extent for axis in stage.axes] == [axis.extent for axis in output.axes]


def nest_of(stage: Stage, lanes: int, strip_axis: int | None, strip: int) -> tuple[Loop, ...]:
    """The loops of a stage, outermost first.

    Args:
        stage: the stage.
        lanes: elements of a vector along the last axis.
        strip_axis: axis of which `strip` steps are computed next to the vector; None for none.
        strip: how many.
    """
    extents = [axis.extent for axis in stage.axes]
    last = len(extents) - 1
    width = min(lanes, extents[last])
    loops = [Loop(axis, extents[axis]) for axis in range(last)]
    inner = [Loop(last, width)]
    if strip_axis is not None and strip:
        size = min(strip, extents[strip_axis])
        loops[strip_axis] = Loop(strip_axis, -(-extents[strip_axis] // size))
        inner.insert(0, Loop(strip_axis, size))
    return tuple(loop for loop in (*loops, Loop(last, -(-extents[last] // width)), *inner) if loop.trips > 1)
