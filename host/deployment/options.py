"""What a user can ask of a deployment, and how long work tells what it is doing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from host.errors import UserError
from host.manifest import BACKENDS

OBJECTIVES = ("latency", "energy")


@dataclass(frozen=True)
class CompileOptions:
    """How a model is made into a bundle.

    Attributes:
        model: the model file.
        name: name of the model on the device; "" takes the file's.
        backend: "auto", "tvm", "onnxruntime" or "litert".
        shapes: shapes for inputs with open dimensions, by input name.
        threads: threads that the model may use; 0 takes all cores of the device.
        seed: of every random choice.
        trials: kernels to measure in all; 0 measures only the finished model.
        command: the command line, kept in the bundle and the report.
    """

    model: Path
    name: str = ""
    backend: str = "auto"
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    threads: int = 0
    seed: int = 0
    trials: int = 0
    command: str = ""

    def check(self) -> None:
        """Refuse what cannot be, before any work.

        Raises:
            UserError: says what to type instead.
        """
        if self.backend not in ("auto", *BACKENDS):
            raise UserError(f"no backend {self.backend!r}: use auto, {', '.join(BACKENDS)}")
        if self.threads < 0:
            raise UserError(f"--threads {self.threads}: give a positive number, or 0 for all cores")
        if self.trials < 0:
            raise UserError(f"--trials {self.trials}: give a number of measurements, or 0 for none")

    def digest(self) -> str:
        """Hash of everything that decides the result."""
        content = asdict(self) | {"model": str(self.model), "shapes": dict(self.shapes), "command": ""}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class DeployOptions(CompileOptions):
    """How a model is brought to a device.

    Attributes:
        device: the device's name.
        objective: "latency" or "energy": what the choice of the backend goes by.
        bundle: where the bundle is written; None is `edgetlm-out/NAME/bundle`.
        peers: engines to measure beside ours; None takes the original runtime of the model's format.
        peer_files: the same model for engines that cannot read `model`'s format, by engine.
        rounds: rounds of the paired comparison.
        install: whether the bundle is installed and activated.
    """

    device: str = "local"
    objective: str = "latency"
    bundle: Path | None = None
    peers: tuple[str, ...] | None = None
    peer_files: Mapping[str, Path] = field(default_factory=dict)
    rounds: int = 12
    install: bool = True

    def check(self) -> None:
        """Refuse what cannot be, before any work.

        Raises:
            UserError: says what to type instead.
        """
        super().check()
        if self.objective not in OBJECTIVES:
            raise UserError(f"no objective {self.objective!r}: use {' or '.join(OBJECTIVES)}")


class Progress(Protocol):
    """Where long work tells what it is doing."""

    def stage(self, name: str) -> None:
        """A new stage begins."""

    def advance(self, done: int, total: int) -> None:
        """So much of the stage is done."""

    def note(self, text: str) -> None:
        """Something that the user should know: a fallback, a missing peer."""


class Silence:
    """Progress that nobody listens to."""

    def stage(self, name: str) -> None:
        """Say nothing."""

    def advance(self, done: int, total: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""
