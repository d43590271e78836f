"""The nouns of the host: one frozen dataclass each. See docs/architecture.md for who makes which."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from targets import Board, HardwareModel

if TYPE_CHECKING:
    import tvm

# Raised whenever the meaning of a decision changes; a candidate or record of another version is
# recognised by it and not misread.
SPACE_VERSION = 2


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and numpy dtype name of one input or output; every dimension is a number."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Signature:
    """What goes into a model and what comes out, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """One set of inputs with the outputs of the original runtime, in the signature's order."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model file, read.

    Attributes:
        name: file name without suffix.
        format: "onnx", "pt2" or "tflite".
        path: a file with all shapes pinned that the original runtime can run.
        signature: inputs and outputs.
        module: relax IRModule whose `main` takes the signature's inputs, weights bound as constants;
            None if it cannot be expressed (`reason`, `operator` say why).
        golden: cases from the original runtime.
        content_hash: SHA-256 of the file and the pinned shapes.
    """

    name: str
    format: str
    path: Path
    signature: Signature
    module: tvm.IRModule | None
    golden: tuple[GoldenCase, ...]
    content_hash: str
    reason: str = ""
    operator: str | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """A fused TensorIR function that a program has to be found for.

    Attributes:
        name: name of the function in the lowered module.
        function: the PrimFunc, unscheduled.
        weight: calls of it in one run of the model.
        workload_hash: structural hash, the same for equal functions of any model.
        flops: floating-point operations of one call.
    """

    name: str
    function: tvm.tirx.PrimFunc
    weight: int
    workload_hash: str
    flops: float


@dataclass(frozen=True, eq=False)
class LoweredModel:
    """A model as a relax module of calls to fused TensorIR functions.

    Attributes:
        module: `main` takes the inputs and then `parameters`, in order.
        parameters: folded constants that the functions read.
        tasks: distinct functions, each once.
    """

    name: str
    signature: Signature
    module: tvm.IRModule
    parameters: tuple[np.ndarray, ...]
    tasks: tuple[Task, ...]
    target: tvm.target.Target


@dataclass(frozen=True)
class DeviceProfile:
    """One unit on somebody's desk: candidates are made for it and records belong to it.

    Attributes:
        device: the user's name for it.
        board: its kind.
        hardware: calibrated where a calibration exists, else the board's.
        threads: threads that a model may use.
        software: versions by name.
    """

    device: str
    board: Board
    hardware: HardwareModel
    threads: int
    software: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A program for a task: every decision of a design space made.

    Attributes:
        workload_hash: the task.
        rule: name of the space's rule ("matmul", "conv2d", ..., "default").
        decisions: sorted pairs of decision name and value (an int or a tuple of ints).
        proposer: "gensor", "tree", "tlm", "evolutionary", "random" or "default".
        estimate_s: the proposer's own estimate of one call, NaN if it has none.
        space_version: `SPACE_VERSION` when it was made.
    """

    workload_hash: str
    rule: str
    decisions: tuple[tuple[str, int | tuple[int, ...]], ...]
    proposer: str
    estimate_s: float
    space_version: int = SPACE_VERSION

    def value(self, name: str) -> Any:
        """The value of one decision.

        Raises:
            KeyError: the candidate has no such decision.
        """
        return dict(self.decisions)[name]


@dataclass(frozen=True)
class Energy:
    """Joules of one run, or why there are none.

    Attributes:
        kind: "measured", "estimated" or "unavailable".
        gross_j: all energy within the boundary; None if unavailable.
        above_idle_j: gross minus idle power times the window; None if unavailable.
        source: the sensor, or the reason for its absence.
        boundary: what the sensor sees ("package", "board", "module", "wall", ...).
    """

    kind: str
    gross_j: float | None
    above_idle_j: float | None
    source: str
    boundary: str = ""


@dataclass(frozen=True)
class Measurement:
    """Times of one program or model on one device, on the device's own clock.

    Attributes:
        times_s: every sample, in order, seconds per run.
        energy: joules per run.
        state_before, state_after: clocks, load, temperatures, throttling as the agent reports them.
        threads: threads used.
    """

    times_s: tuple[float, ...]
    energy: Energy
    state_before: dict[str, Any]
    state_after: dict[str, Any]
    threads: int

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.times_s)

    @property
    def median_s(self) -> float:
        """Median seconds per run."""
        return float(np.median(self.times_s))

    @property
    def p10_s(self) -> float:
        """10th percentile of seconds per run."""
        return float(np.percentile(self.times_s, 10))

    @property
    def p90_s(self) -> float:
        """90th percentile of seconds per run."""
        return float(np.percentile(self.times_s, 90))
