"""Programs of one operator for one board, compiled together and counted one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from benchmarks.emulation.verify import proposal
from benchmarks.instructions.compiling import LimitedCompiler
from benchmarks.instructions.counting import count_blocks
from benchmarks.instructions.cycles import cycles_per_run, estimated_cycles
from benchmarks.instructions.figures import Counted
from benchmarks.operators.comparison import TOLERANCE, relative_error
from benchmarks.operators.methods import random_programs
from host.build import KernelCache, target_for
from host.errors import BuildError, ScheduleError
from host.model import DeviceProfile, Task
from host.schedules import scheduled_function
from research.modelled_boards.listing import (
    Instruction,
    disassemble,
    executions,
    hot_loop,
    runs_of,
)
from targets import Board
from tests.emulation.qemu import Call, executable

GENSOR = "gensor"


@dataclass(frozen=True, eq=False)
class Programs:
    """Programs of one operator that compile.

    Attributes:
        functions: scheduled functions by name; `GENSOR` is Gensor's first proposal, the others are random.
        failed: random programs that do not compile or not in time, with their decisions and the reason.
    """

    functions: Mapping[str, tvm.tirx.PrimFunc]
    failed: tuple[dict[str, Any], ...]


def programs_of(
    task: Task, profile: DeviceProfile, samples: int, seed: int, compiler: LimitedCompiler, folder: Path
) -> Programs:
    """Gensor's first proposal and random programs of the same space, compiled.

    Raises:
        BuildError: Gensor's proposal does not compile in time.
        ScheduleError: the task has no design space.
    """
    space, candidate = proposal(task, profile)
    functions = {GENSOR: scheduled_function(space.apply(candidate))}
    target = target_for(profile.board)
    compiler.compile(functions[GENSOR], target, folder)
    failed = []
    for number, program in enumerate(random_programs(space, samples, seed)):
        try:
            compiler.compile(program.function, target, folder)
        except BuildError as error:
            failed.append({"decisions": dict(program.decisions), "reason": str(error)[:300]})
            continue
        functions[f"random-{number}"] = program.function
    return Programs(functions, tuple(failed))


def count(
    functions: Mapping[str, tvm.tirx.PrimFunc],
    task: Task,
    board: Board,
    folder: Path,
    counter: Path,
    cache: KernelCache | None,
) -> dict[str, Counted]:
    """What each program executes in one call with the same seeded arguments.

    Args:
        functions: scheduled functions by name, `GENSOR` among them.
        task: what they all compute.
        board: what they are compiled for.
        folder: for files.
        counter: of `build_counter`.
        cache: holds their objects; None compiles all.

    Raises:
        ScheduleError: a program's results differ from Gensor's.
        RuntimeError: emulator or pipeline model fail.
    """
    program = executable(board, functions, folder, cache)
    # What the runner does around the kernel is no part of it.
    instructions = [i for i in disassemble(program, board.architecture) if "kernel_" in i.function]
    found: dict[str, Counted] = {}
    expected: np.ndarray | None = None
    for name in (GENSOR, *(name for name in functions if name != GENSOR)):
        call = Call(name, _arguments(task))
        values, blocks = count_blocks(program, list(functions), call, board.architecture, counter)
        expected = values[-1] if expected is None else expected
        error = relative_error(values[-1], expected)
        if error > TOLERANCE:
            raise ScheduleError(
                f"{task.name}: {name} and {GENSOR} differ by {error:.1e} of the largest value"
            )
        found[name] = counted(instructions, executions(instructions, blocks), board)
    return found


def counted(instructions: list[Instruction], counts: Mapping[int, int], board: Board) -> Counted:
    """The figures of one program from the executions of its instructions."""
    total = sum(counts.values())
    cycles = estimated_cycles(runs_of(instructions, counts), board)
    loop = hot_loop(instructions, counts)
    if loop is None:
        return Counted(total, cycles, 0, 0, None, 0.0)
    [of_loop] = cycles_per_run([loop], board)
    fused = sum(instruction.fused for instruction in loop.instructions)
    return Counted(total, cycles, len(loop.instructions), fused, of_loop, loop.executed / total)


def _arguments(task: Task) -> tuple[np.ndarray, ...]:
    """Seeded values for the inputs, the output last and zeroed."""
    draw = np.random.default_rng(0)
    shapes = [tuple(int(extent) for extent in parameter.shape) for parameter in task.function.params]
    given = [draw.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    return (*given, np.zeros(shapes[-1], "float32"))
