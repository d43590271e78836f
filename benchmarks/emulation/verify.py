"""One operator on one emulated board: its model runs here, its kernel in the emulator."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.runtime.vm import VMInstrumentReturnKind

from benchmarks.operators.comparison import relative_error
from benchmarks.operators.configurations import Operator
from benchmarks.operators.subject import Subject, prepare
from host.build import build_model
from host.errors import ScheduleError
from host.gensor import Gensor
from host.model import Candidate, DeviceProfile, LoweredModel, Task
from host.schedules import DesignSpace, scheduled_function, space_for
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import Call, executable, run

Kernel = Callable[[list[np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one operator on one emulated processor.

    Attributes:
        rule: of the design space.
        max_rel_err: largest error, relative to the largest expected value; infinite for NaN.
    """

    rule: str
    max_rel_err: float


def verify(operator: Operator, board_name: str, folder: Path, limit_s: float) -> dict[str, Verdict]:
    """Gensor's first proposal for a board, right or wrong, by the emulator's name of the processor.

    Args:
        operator: which.
        board_name: a key of `PROCESSORS`.
        folder: for files.
        limit_s: seconds that one emulated call may take.

    Raises:
        EdgeError: it does not lower, no rule has a program for it, or it does not compile.
        RuntimeError: the emulated program ends with an error.
        subprocess.TimeoutExpired: it takes longer than `limit_s`.
    """
    board = board_of(board_name)
    profile = DeviceProfile(board_name, board, board.hardware, 1)
    subject = prepare(operator, profile, folder)
    space, candidate = proposal(subject.task, profile)
    kernels = {"kernel": scheduled_function(space.apply(candidate))}
    program = executable(board, kernels, folder / f"{operator.name}-{board_name}")
    verdicts = {}
    for processor in PROCESSORS[board_name]:

        def emulated(arguments: list[np.ndarray], processor: str = processor) -> list[np.ndarray]:
            call = Call("kernel", tuple(arguments))
            [made] = run(program, ["kernel"], [call], board.architecture, processor, limit_s)
            return made

        made = run_around(subject, folder / f"{operator.name}-{board_name}" / f"{processor}.so", emulated)
        verdicts[processor] = Verdict(candidate.rule, relative_error(made, subject.expected))
    return verdicts


def proposal(task: Task, profile: DeviceProfile) -> tuple[DesignSpace, Candidate]:
    """Gensor's first proposal, nothing measured.

    Raises:
        ScheduleError: no rule matches, or no program is legal.
    """
    space = space_for(task, profile.hardware, profile.threads)
    [candidate] = Gensor().propose(space, profile, (), 1, seed=0)
    if not math.isfinite(candidate.estimate_s):
        raise ScheduleError(f"{task.name}: no program of rule {space.rule.name} is legal")
    return space, candidate


def run_around(subject: Subject, library: Path, kernel: Kernel) -> np.ndarray:
    """The model's output where its one function is computed by `kernel` and all else by this machine.

    Args:
        subject: the operator in its model.
        library: path of the library to be built for this machine.
        kernel: takes the function's arguments, the output last and zeroed; returns them as they are after it.
    """
    here = _for_this_machine(subject.lowered)
    build_model(here, {}, library)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    calls = 0

    def instrument(
        function: object, symbol: str, before: bool, returned: object, *arguments: tvm.runtime.Tensor
    ) -> int:
        nonlocal calls
        if symbol != subject.task.name or not before:
            return int(VMInstrumentReturnKind.NO_OP)
        calls += 1
        *given, output = arguments
        values = [tensor.numpy() for tensor in given]
        output.copyfrom(kernel([*values, np.zeros(output.shape, str(output.dtype))])[-1])
        return int(VMInstrumentReturnKind.SKIP_RUN)

    machine.set_instrument(instrument)
    arguments = [tvm.runtime.tensor(array) for array in (*subject.inputs, *subject.lowered.parameters)]
    made = machine["main"](*arguments).numpy()
    assert calls == 1, f"{subject.task.name} was called {calls} times"
    return np.asarray(made)


def _for_this_machine(lowered: LoweredModel) -> LoweredModel:
    target = tvm.target.Target({"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"})
    return replace(lowered, target=target)
