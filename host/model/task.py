"""Functions that need a program, the programs, and the device that they are for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from host.model.call_graph import CallGraph
from host.model.layer import Layer
from host.model.signature import Signature, TensorSpec
from host.model.site import Site
from targets import Board, HardwareModel

if TYPE_CHECKING:
    import numpy as np
    import tvm


# Operations for a byte of weights where each weight is read about once: 0.5 of one in float32, 1 in half
# precision, and half of that where half of them are an embedding.
_STREAMED_OPERATIONS = (0.25, 2.0)
# As many bytes of weights may stay in a cache between two runs.
_CACHED_BYTES = 32 << 20


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
        layers: of the model's file, which it computes over all its calls; empty where they are not known.
        model_weights_bytes: of all weights that one run of its model reads, which decide where its own ones
            are when it is called; 0 where they are not known.
    """

    name: str
    function: tvm.tirx.PrimFunc
    weight: int
    workload_hash: str
    flops: float
    layers: tuple[Layer, ...] = ()
    model_weights_bytes: int = 0


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
        sequences: texts of a language model, each of which has such a state.
        calls: of `main` in one run.
        sites: what lowering decided, and could have decided otherwise; empty where no plan can be made.
    """

    name: str
    signature: Signature
    module: tvm.IRModule
    parameters: tuple[np.ndarray, ...]
    tasks: tuple[Task, ...]
    target: tvm.target.Target
    state: tuple[TensorSpec, ...] = ()
    entries: tuple[str, ...] = ()
    sequences: int = 1
    calls: CallGraph = field(default_factory=CallGraph)
    sites: tuple[Site, ...] = ()

    def streams(self, weights_bytes: int) -> bool:
        """Whether a run reads most of the weights, each about once, and no cache holds them.

        So it is in a step of a decoder or a multi-layer perceptron with few rows. Where a run has many
        operations for a byte, weights are read again from caches; where it has few, as with a large
        embedding, most are not read.

        Args:
            weights_bytes: of `parameters`, which may be gone.
        """
        operations = sum(task.flops * task.weight for task in self.tasks)
        low, high = (weights_bytes * bound for bound in _STREAMED_OPERATIONS)
        return weights_bytes >= _CACHED_BYTES and low <= operations <= high


@dataclass(frozen=True)
class MemoryUse:
    """What a compiled model takes of a device's memory while it runs.

    Attributes:
        weights_bytes: of the parameters, which are pages of their file.
        activations_bytes: of inputs, outputs, the planned memory of everything between, and the state that is
            kept between calls.
        workspace_bytes: of scratch memory of the kernels on all threads, or on the GPU, at most; None where
            it depends on the length of an input.
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
    """One device with a number of threads: candidates are made for it and records belong to it.

    Attributes:
        device: the user's name for it.
        board: its kind.
        hardware: calibrated where a calibration exists, else the board's.
        threads: threads that a model may use.
        software: versions by name.
        memory_bytes: of the machine; 0 where it is not known.
    """

    device: str
    board: Board
    hardware: HardwareModel
    threads: int
    software: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = 0


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
