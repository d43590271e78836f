"""The compiler step by step: model to tasks, task to design space, decisions to program, program to record.

    from sdk import compiler

    profile = compiler.target_profile("local", threads=1)
    model = compiler.read_model("model.onnx")
    for task in compiler.tasks(model, profile):
        space = compiler.design_space(task, profile)
        [candidate] = compiler.propose(space, profile)
        print(task.name, candidate.decisions, space.estimate_s(dict(candidate.decisions)))

    with compiler.Bench("local", threads=1) as bench:
        record = bench.measure(compiler.design_space(task, bench.profile), candidate)

A proposer is any object with the method of `Proposer`; `sdk.tune(model, proposer=...)` uses it together with
the other proposers. A rule is an object of `Rule`, an operator is an object of `OpSpec`. Installed packages
add all three by name: see the examples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from host.closing import Closing
from host.compile.device_profile import profile_of, target_profile
from host.errors import ScheduleError
from host.gensor import Gensor
from host.importers import load
from host.lowering import lower
from host.lowering.builder import Builder
from host.lowering.expressions import math as formulas
from host.lowering.graph import Graph, Node, Value
from host.lowering.ops import known_operators
from host.lowering.ops.forms import elementwise
from host.lowering.spec import Fusion, GraphPass, Kind, OperatorTable, OpSpec, Phase
from host.lowering.types import NumericType
from host.model import (
    Candidate,
    Decoder,
    DeviceProfile,
    Energy,
    GoldenCase,
    ImportedModel,
    Layer,
    LengthRange,
    Measurement,
    Signature,
    Task,
    TensorSpec,
)
from host.options.numeric_types import half_of
from host.records import Record, RecordOrigin, RecordStore, profile_data
from host.schedules import Decision, DesignSpace, scheduled_function, space_for
from host.schedules.api import CPU, GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.constants import EstimateConstant
from host.schedules.length_tiling import LengthTile, LengthTiling, TileDesign
from host.schedules.proposer import Proposer
from host.schedules.workload import Access, Axis, Move, Stage, Workload
from host.transport import connect
from targets import Bfloat16Products, Board, GpuMode, GpuModel, HardwareModel, MatrixTiles, MemoryLevel

if TYPE_CHECKING:
    from tvm import tirx

__all__ = [
    "CPU",
    "GPU",
    "Access",
    "Axis",
    "Bench",
    "Bfloat16Products",
    "Board",
    "Builder",
    "Candidate",
    "Decision",
    "DecisionKind",
    "Decisions",
    "Decoder",
    "DesignSpace",
    "DeviceProfile",
    "Energy",
    "EstimateConstant",
    "Fusion",
    "GoldenCase",
    "GpuMode",
    "GpuModel",
    "Graph",
    "GraphPass",
    "HardwareModel",
    "ImportedModel",
    "Kind",
    "Layer",
    "LengthRange",
    "LengthTile",
    "LengthTiling",
    "Level",
    "MatrixTiles",
    "Measurement",
    "MemoryLevel",
    "Move",
    "Node",
    "NumericType",
    "OpSpec",
    "OperatorTable",
    "Phase",
    "Proposer",
    "Record",
    "RecordOrigin",
    "Rule",
    "Sampler",
    "Signature",
    "Stage",
    "Task",
    "TensorSpec",
    "TileDesign",
    "Value",
    "WordClass",
    "Workload",
    "design_space",
    "elementwise",
    "formulas",
    "program",
    "propose",
    "read_model",
    "target_profile",
    "tasks",
]


def read_model(
    path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Sequence[float]] | None = None,
) -> ImportedModel:
    """Read a model file in a sandboxed worker process.

    Args:
        path: ONNX, `.pt2` or TFLite file.
        shapes: shapes of inputs with open dimensions, by name of the input or of the dimension.
        values: numbers of inputs that are fixed, by name: the model no longer has them. ONNX only.

    Returns:
        The model; if the compiler cannot express it, it has no module but a reason.

    Raises:
        ModelFileError: there is no such file, or it is no model.
        ShapeError: a dimension is open and not given, or a value does not fit.
    """
    return load(Path(path), shapes, values=values)


def tasks(
    model: ImportedModel, profile: DeviceProfile, dtype: str = "fp32", operators: Sequence[OpSpec] = ()
) -> tuple[Task, ...]:
    """The distinct functions that a model becomes on a device, unscheduled.

    Args:
        model: as read.
        profile: of the device; the packing of weights and the choice of algorithms depend on it.
        dtype: "fp32", "fp16" or "bf16".
        operators: more operations than the compiler and installed packages have.

    Raises:
        ImportFailed: the compiler cannot express the model.
        LoweringError: it has no lowering on this target, or two operations have one name.
    """
    known = known_operators().with_specs(*operators)
    return lower(model, profile.board, half=half_of(dtype), operators=known).tasks


def design_space(task: Task, profile: DeviceProfile, rules: Sequence[Rule] | None = None) -> DesignSpace:
    """The design space of a task.

    Args:
        task: unscheduled.
        profile: of the device.
        rules: to try in order; the first rule that matches makes the space. None takes all installed rules.

    Raises:
        ScheduleError: no rule matches.
    """
    return space_for(task, profile.hardware, profile.threads, rules)


def propose(
    space: DesignSpace,
    profile: DeviceProfile,
    proposer: Proposer | None = None,
    history: Sequence[tuple[Candidate, Measurement]] = (),
    k: int = 1,
    seed: int = 0,
) -> list[Candidate]:
    """Programs of a design space, best first.

    Args:
        space: of one task.
        profile: of the device.
        proposer: makes the programs; None for Gensor.
        history: records of this task on this device.
        k: largest number of programs.
        seed: of every random choice; the same arguments give the same programs.
    """
    return (proposer or Gensor()).propose(space, profile, history, k, seed)


def program(space: DesignSpace, decisions: Mapping[str, int]) -> tirx.PrimFunc:
    """The scheduled function with these decisions.

    Args:
        space: of one task.
        decisions: a value for each of `space.decisions`, by name.

    Raises:
        ScheduleError: a decision is missing or unknown, or the values do not fit together.
    """
    return scheduled_function(space.apply(_candidate(space, decisions)))


def _candidate(space: DesignSpace, decisions: Mapping[str, int]) -> Candidate:
    names = {decision.name for decision in space.decisions}
    if names != decisions.keys():
        wrong = ", ".join(sorted(names ^ decisions.keys()))
        raise ScheduleError(f"{space.task.name}: give the decisions {', '.join(sorted(names))} (see {wrong})")
    return space.candidate(decisions, "user")


class Bench(Closing):
    """A device on which single programs are measured; a context manager.

    Args:
        device: name of the device.
        threads: that programs may use; 0 takes all cores of the device.
        records: store that records are added to, a SQLite file or an SQLAlchemy URL; None stores nothing.

    Attributes:
        profile: of the device; make the design spaces of measured programs with this profile.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """

    def __init__(self, device: str = "local", threads: int = 0, records: str | Path | None = None) -> None:
        from host.tuning.runners.connection import BoardAccess, DeviceConnection
        from host.tuning.runners.device_runner import DeviceRunner

        self._open = ExitStack()
        try:
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="edgetlm-")))
            connected = connect(device)
            self._open.callback(connected.close)
            self.profile = profile_of(connected, threads)
            access = BoardAccess(device, self.profile, lambda: connect(device), connected, keep=True)
            runner = DeviceRunner([DeviceConnection(access)], self.profile, folder, lambda line: None)
            self._runner = self._open.enter_context(runner)
            self._store = self._open.enter_context(RecordStore(records)) if records is not None else None
        except BaseException:
            self._open.close()
            raise

    def measure(self, space: DesignSpace, candidate: Candidate | Mapping[str, int]) -> Record:
        """Build a program and time it on the device, with cold caches.

        Args:
            space: of its task, made with this bench's `profile`.
            candidate: the program, or a value for each decision.

        Returns:
            The measurement, or why the program does not build or run (`failure`).

        Raises:
            ScheduleError: the decisions are no program of the space.
            BuildError: the program does not compile.
            DeviceError: the device went away and does not come back.
        """
        from host.tuning.runners.runner import Program
        from host.tuning.tasks import TuningTask

        if not isinstance(candidate, Candidate):
            candidate = _candidate(space, candidate)
        task = TuningTask(space, candidate.estimate_s)
        built = Program(task, candidate, self._runner.build(task, candidate))
        [outcome] = self._runner.run([built], lambda: True)
        data = profile_data(self.profile)
        origin = RecordOrigin(command="sdk.compiler.Bench", task=space.task.name)
        if outcome.measurement is None:
            record = Record.failed(candidate, data, outcome.failure, origin)
        else:
            record = Record(candidate, data, outcome.measurement, origin=origin)
        if self._store is not None:
            self._store.append([record])
        return record

    def close(self) -> None:
        """End the connection and remove what was built."""
        self._open.close()
