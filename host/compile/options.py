"""What a user can ask of a compilation and of a deployment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import is_name
from device_agent.contract.text import printable
from host.compile.processor import PROCESSORS
from host.errors import UserError
from host.manifest import BACKENDS

DTYPES = ("fp32", "fp16")
OBJECTIVES = ("latency", "energy", "edp")

# A dimension of a shape: its size, or the least and greatest size that are to be served.
Size = int | tuple[int, int]


@dataclass(frozen=True)
class CompileOptions:
    """How a model is made into a bundle.

    Attributes:
        model: the model file.
        name: name of the model on the device; "" takes the file's.
        backend: "auto", "tvm", "onnxruntime" or "litert".
        shapes: shapes for inputs with open dimensions, by input name; or sizes by the name of a dimension.
            One dimension may be a range.
        lengths: lengths of the range at which the model is measured; () takes a few spread over it.
        threads: threads that the model may use; 0 takes all cores of the device.
        processor: "cpu", "gpu" (the board's CUDA GPU), or "auto": whichever verified one is faster where both
            can be measured, else the CPU.
        dtype: what tensors lie in memory as: "fp32", or "fp16", with which sums are still single precision.
        cuda: CUDA version of a board that is compiled for without being there; "" takes the usual JetPack's.
        seed: of every random choice.
        trials: kernels to measure in all; 0 measures only the finished model, unless there is a `budget_s`.
        budget_s: seconds that measuring kernels may take; 0 sets no limit.
        train: whether the language model learns from what is measured.
        reconnect_s: seconds that a device which goes away while kernels are measured is waited for.
        wait_s: seconds to wait for a device that another host has.
        records: store of records: a SQLite file or an SQLAlchemy URL; "" takes the user's.
        command: the command line, kept in the bundle and the report.
    """

    model: Path
    name: str = ""
    backend: str = "auto"
    shapes: Mapping[str, tuple[Size, ...]] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    threads: int = 0
    processor: str = "auto"
    dtype: str = "fp32"
    cuda: str = ""
    seed: int = 0
    trials: int = 0
    budget_s: float = 0.0
    train: bool = True
    reconnect_s: float = 300.0
    wait_s: float = 0.0
    records: str = ""
    command: str = ""

    @property
    def ranged(self) -> bool:
        """Whether a range of lengths was asked for."""
        return any(isinstance(size, tuple) for shape in self.shapes.values() for size in shape)

    @property
    def tuned(self) -> bool:
        """Whether kernels are measured."""
        return bool(self.trials or self.budget_s)

    def fixed_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes without a range."""
        return {
            name: tuple(size for size in shape if isinstance(size, int))
            for name, shape in self.shapes.items()
            if all(isinstance(size, int) for size in shape)
        }

    def check(self) -> None:
        """Refuse what cannot be, before any work.

        Raises:
            UserError: says what to type instead.
        """
        if self.backend not in ("auto", *BACKENDS):
            raise UserError(f"no backend {self.backend!r}: use auto, {', '.join(BACKENDS)}")
        if self.name and not is_name(self.name):
            raise UserError(
                f"--name {printable(self.name)}: use letters, digits, dot, dash and underscore, at most"
                f" {LIMITS.bundle.name_characters} characters"
            )
        if self.dtype not in DTYPES:
            raise UserError(f"no dtype {self.dtype!r}: use {' or '.join(DTYPES)}")
        if self.dtype == "fp16" and self.ranged:
            raise UserError("--dtype fp16 does not go with a range of lengths: leave one of them out")
        if self.processor not in PROCESSORS:
            raise UserError(f"no processor {self.processor!r}: use {', '.join(PROCESSORS)}")
        if self.processor == "gpu" and self.ranged:
            raise UserError("--processor gpu does not go with a range of lengths: leave one of them out")
        if self.threads < 0:
            raise UserError(f"--threads {self.threads}: give a positive number, or 0 for all cores")
        if self.trials < 0:
            raise UserError(f"--trials {self.trials}: give a number of measurements, or 0 for none")
        if self.ranged and self.tuned:
            asked = f"--trials {self.trials}" if self.trials else "--budget"
            raise UserError(
                f"{asked}: kernels are measured at one length, and --shape gives a range: "
                f"leave {asked.split()[0]} out, or give one length"
            )
        if self.lengths and not self.ranged:
            raise UserError("--lengths goes with a range of lengths, as in --shape seq=1..512")

    def digest(self) -> str:
        """Hash of everything that decides the result."""
        content = asdict(self) | {"model": str(self.model), "shapes": dict(self.shapes), "command": ""}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class DeployOptions(CompileOptions):
    """How a model is brought to a device.

    Attributes:
        device: the device's name.
        objective: "latency", "energy" (gross joules of a run) or "edp" (their product): what the choice
            among finalists and of the backend goes by.
        power_cap_w: greatest mean gross watts, at the boundary of the device's sensor; None for no limit.
        power_modes: power modes to measure in, or "all"; () for the one that the device is in.
        bundle: where the bundle is written; None is `edgetlm-out/NAME/bundle`.
        peers: engines to measure beside ours; None takes the original runtime of the model's format.
        peer_files: the same model for engines that cannot read `model`'s format, by engine.
        beside: further devices of the kind that measure kernels beside it; nothing is installed on them.
        rounds: rounds of the paired comparison.
        install: whether the bundle is installed and activated.
    """

    device: str = "local"
    objective: str = "latency"
    power_cap_w: float | None = None
    power_modes: tuple[str, ...] = ()
    bundle: Path | None = None
    peers: tuple[str, ...] | None = None
    peer_files: Mapping[str, Path] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    rounds: int = 12
    install: bool = True

    def check(self) -> None:
        """Refuse what cannot be, before any work.

        Raises:
            UserError: says what to type instead.
        """
        super().check()
        if self.objective not in OBJECTIVES:
            raise UserError(f"no objective {self.objective!r}: use {', '.join(OBJECTIVES)}")
        if self.power_cap_w is not None and not 0.0 < self.power_cap_w < float("inf"):
            raise UserError(f"--power-cap {self.power_cap_w:g}: give watts above 0, as in --power-cap 10")

    @property
    def needs_energy(self) -> bool:
        """Whether nothing can be chosen without joules or watts."""
        return self.objective != "latency" or self.power_cap_w is not None

    @property
    def has_finals(self) -> bool:
        """Whether variants of the model are measured beside each other before one is taken."""
        return self.needs_energy or bool(self.power_modes) or self.tuned
