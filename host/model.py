"""The nouns of the host: one frozen dataclass each. See docs/architecture.md for who makes which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.errors import ShapeError
from targets import Board, HardwareModel

if TYPE_CHECKING:
    import numpy as np
    import tvm

    from host.quantised import Quantisation


@dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Attributes:
        name: as in the model.
        shape: a number for every dimension; where the length is open, the one at the greatest length.
        dtype: numpy dtype name.
        open: the axes that change with the length; those of an input are the length itself.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    open: tuple[int, ...] = ()

    def shape_at(self, length: int) -> tuple[int, ...]:
        """The shape of an input at one length."""
        return tuple(length if axis in self.open else size for axis, size in enumerate(self.shape))


@dataclass(frozen=True)
class LengthRange:
    """The lengths that a model with one open dimension serves.

    Attributes:
        name: the model's symbol for the dimension.
        low, high: least and greatest length, both served.
        measured: lengths at which it is measured, in order.
    """

    name: str
    low: int
    high: int
    measured: tuple[int, ...] = ()


@dataclass(frozen=True)
class Signature:
    """What goes into a model and what comes out, in order.

    Attributes:
        inputs, outputs: the tensors.
        length: the range of the open dimension; None where every dimension is a number.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    length: LengthRange | None = None

    def length_of(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """The length of one set of inputs; 0 where every dimension is a number.

        Args:
            shapes: of the inputs, in order.

        Raises:
            ShapeError: a shape does not fit, two inputs disagree, or the length is outside the range.
        """
        found: tuple[str, int] | None = None
        for spec, shape in zip(self.inputs, shapes, strict=True):
            given = shape[spec.open[0]] if spec.open and len(shape) == len(spec.shape) else 0
            if tuple(shape) != spec.shape_at(given) or (spec.open and not given):
                raise ShapeError(
                    f"input {spec.name!r} is {spec.dtype}{list(shape)}, the model takes {self.type_of(spec)}"
                )
            if spec.open and found is not None and found[1] != given:
                raise ShapeError(
                    f"input {spec.name!r} has length {given}, but {found[0]!r} has {found[1]}: "
                    "give all the same"
                )
            if spec.open and found is None:
                found = (spec.name, given)
        if found is None or self.length is None:
            return 0
        low, high = self.length.low, self.length.high
        if not low <= found[1] <= high:
            raise ShapeError(
                f"input {found[0]!r} has length {found[1]}, the model takes "
                f"{self.length.name}={low}..{high}: give another, or deploy the model for a wider range"
            )
        return found[1]

    def type_of(self, spec: TensorSpec) -> str:
        """Element type and shape as text, the open dimension by its name."""
        name = self.length.name if self.length is not None else ""
        sizes = (name if axis in spec.open else str(size) for axis, size in enumerate(spec.shape))
        return f"{spec.dtype}[{', '.join(sizes)}]"


# Spread of the outputs of a model whose tensors are kept as halves. Each is rounded once to 11 bits, 4.9e-4
# of its size at most; the errors of n layers are independent and grow as the root of n: 3.5e-3 after 50.
HALF_SPREAD = 5e-3


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """One set of inputs with the outputs of the original runtime, in the signature's order.

    Attributes:
        inputs: of the model.
        outputs: of the original runtime.
        spread: how far two ways of computing the model by the original runtime itself part, relative to the
            largest output; 0 for models that are not quantised.
    """

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    spread: float = 0.0


@dataclass(frozen=True, eq=False)
class Decoder:
    """What a language model has beside `main`, which takes one token and gives the logits of the next one.

    Attributes:
        context: tokens that the state has places for, C.
        chunk: tokens of one call of `prefill`, P.
        vocabulary: logits of a step, V.
        end_tokens: tokens that end a text.
        prefill: relax IRModule whose `main` takes tokens (P) int32, the position of the first (1) int32, the
            row whose logits are wanted (1) int32, and then the state; it gives logits (1, V) float32.
        tokenizer: a `tokenizer.json`, or the content of one; None where the model came without one.
    """

    context: int
    chunk: int
    vocabulary: int
    end_tokens: tuple[int, ...]
    prefill: tvm.IRModule
    tokenizer: Path | bytes | None


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
        golden: cases from the original runtime; of a model with state, in the order in which they run.
        content_hash: SHA-256 of the file and the pinned shapes.
        state: tensors that `main` takes behind the inputs, reads and changes: zeros when the model is loaded,
            kept from call to call.
        decoder: of a language model; None of others.
        quantisation: how the file was quantised here; None if it was not.
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
    state: tuple[TensorSpec, ...] = ()
    decoder: Decoder | None = None
    quantisation: Quantisation | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """A fused TensorIR function that a program has to be found for.

    Attributes:
        name: name of the function in the lowered module.
        function: the PrimFunc, unscheduled.
        weight: calls of it in one run of the model; of a kernel that only another entry calls, in one run of
            that.
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
        module: `main` takes the inputs, the state and then `parameters`, in order; so does each of `entries`,
            with inputs of its own.
        parameters: folded constants that the functions read.
        tasks: distinct functions, each once.
        state: tensors that are kept between calls and changed in place.
        entries: names of the functions that a runtime calls beside `main`.
    """

    name: str
    signature: Signature
    module: tvm.IRModule
    parameters: tuple[np.ndarray, ...]
    tasks: tuple[Task, ...]
    target: tvm.target.Target
    state: tuple[TensorSpec, ...] = ()
    entries: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryUse:
    """What a compiled model takes of a device's memory while it runs.

    Attributes:
        weights_bytes: of the parameters, which are pages of their file.
        activations_bytes: of inputs, outputs, the planned memory of everything between, and the state that is
            kept between calls.
        workspace_bytes: of scratch memory of the kernels on all threads, at most; None where it depends on
            the length of an input, or is a GPU's.
    """

    weights_bytes: int
    activations_bytes: int
    workspace_bytes: int | None

    @property
    def peak_bytes(self) -> int:
        """All of it together, without the workspaces where those are not known."""
        return self.weights_bytes + self.activations_bytes + (self.workspace_bytes or 0)


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
        space_version: version of the rule (`host.schedules.api.Rule`) when it was made.
    """

    workload_hash: str
    rule: str
    decisions: tuple[tuple[str, int | tuple[int, ...]], ...]
    proposer: str
    estimate_s: float
    space_version: int

    def value(self, name: str) -> Any:
        """The value of one decision.

        Raises:
            KeyError: the candidate has no such decision.
        """
        return dict(self.decisions)[name]


@dataclass(frozen=True)
class Energy:
    """Joules of one run, or why there are none; what is not known is None, never 0.

    Attributes:
        kind: "measured", "estimated" (a formula with fitted constants) or "unavailable".
        gross_j: all energy within the boundary; None if unavailable.
        above_idle_j: gross minus idle power times the window; None if unavailable or not distinguishable
            from idle.
        source: the sensor, or the reason for its absence.
        boundary: what the sensor sees ("package", "module", "board", "dc-input", "wall", "pmic-rails", ...).
        rails: that were summed.
        mean_w, peak_w: gross watts over the windows, and the most in a sample (between two counter readings).
        idle_w, idle_std_w: watts without work, and their standard deviation.
        std_j: standard deviation of `gross_j` over trials; None with fewer than two.
        trials: windows that the figures are the mean of.
        n_inferences, n_samples, n_dropped: of all these windows: runs, readings, readings that failed.
        duration_s: of all these windows.
        sample_period_s: seconds between two readings as they came.
        accuracy: of the sensor, as its maker states it, "" where unknown.
        reason: why a value is missing ("not distinguishable from idle", "no idle power was taken").
        trace: power over time: seconds since the first window began, watts, hottest zone in degrees Celsius
            or None.
    """

    kind: str
    gross_j: float | None
    above_idle_j: float | None
    source: str
    boundary: str = ""
    rails: tuple[str, ...] = ()
    mean_w: float | None = None
    peak_w: float | None = None
    idle_w: float | None = None
    idle_std_w: float | None = None
    std_j: float | None = None
    trials: int | None = None
    n_inferences: int | None = None
    n_samples: int | None = None
    n_dropped: int | None = None
    duration_s: float | None = None
    sample_period_s: float | None = None
    accuracy: str = ""
    reason: str = ""
    trace: tuple[tuple[float, float, float | None], ...] = ()


def comparable(a: Energy, b: Energy) -> str | None:
    """Why two energies must not be compared, None where they may.

    Joules of a package and of a whole board are different things, and so are a reading and an estimate.
    """
    for one in (a, b):
        if one.gross_j is None:
            return f"energy is unavailable ({one.reason or one.source})"
    if a.kind != b.kind:
        return f"one energy is {a.kind}, the other {b.kind}: measure both the same way"
    if a.boundary != b.boundary:
        return f"one energy is of the {a.boundary or 'unknown'} boundary, the other of the " + (
            f"{b.boundary or 'unknown'} boundary: measure both with the same sensor"
        )
    if set(a.rails) != set(b.rails):
        rails = " and ".join(", ".join(one.rails) or "none" for one in (a, b))
        return f"the energies are of other rails ({rails}): measure both with the same sensor"
    return None


@dataclass(frozen=True)
class Measurement:
    """Times of one program or model on one device, on the device's own clock.

    Attributes:
        times_s: every sample, in order, seconds per run.
        energy: joules per run.
        state_before, state_after: clocks, load, temperatures, throttling as the agent reports them.
        threads: threads used.
        throttled: the device was slowed down meanwhile, in spite of being measured again: the times are not
            what it can do. Nothing learns from it, and no program is the best by it.
        throttle_reasons: what shows it.
        invalid: why it says nothing at all (the supply is too weak), "" where it does.
        conditions: how it was measured: `retries` after throttling, `cooldown_s`, `cooldown_timeouts`.
        instructions: of one run, where an emulator counted them in place of the time; None elsewhere.
    """

    times_s: tuple[float, ...]
    energy: Energy
    state_before: dict[str, Any]
    state_after: dict[str, Any]
    threads: int
    throttled: bool = False
    throttle_reasons: tuple[str, ...] = ()
    invalid: str = ""
    conditions: dict[str, Any] = field(default_factory=dict)
    instructions: float | None = None

    @property
    def trusted(self) -> bool:
        """Whether a program may be judged by it: the device ran as it can."""
        return not self.throttled and not self.invalid

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.times_s)

    @property
    def median_s(self) -> float:
        """Median seconds per run."""
        import numpy as np

        return float(np.median(self.times_s))

    @property
    def p10_s(self) -> float:
        """10th percentile of seconds per run."""
        return self._percentile_s(10)

    @property
    def p90_s(self) -> float:
        """90th percentile of seconds per run."""
        return self._percentile_s(90)

    def _percentile_s(self, percent: int) -> float:
        # Here, so that what only asks a device how it is does not load NumPy.
        import numpy as np

        return float(np.percentile(self.times_s, percent))
