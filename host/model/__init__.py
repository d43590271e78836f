"""What packages of the host exchange, one frozen dataclass each; docs/architecture.md says who makes it."""

from __future__ import annotations

from host.model.imported import Decoder, ImportedModel
from host.model.measurement import Energy, Measurement, comparable
from host.model.signature import HALF_SPREADS, GoldenCase, LengthRange, Signature, TensorSpec
from host.model.task import Candidate, DeviceProfile, LoweredModel, MemoryUse, Task
from host.model.timing import BOARD, EMULATOR, SIMULATION, TimingPolicy

__all__ = [
    "BOARD",
    "EMULATOR",
    "HALF_SPREADS",
    "SIMULATION",
    "Candidate",
    "Decoder",
    "DeviceProfile",
    "Energy",
    "GoldenCase",
    "ImportedModel",
    "LengthRange",
    "LoweredModel",
    "Measurement",
    "MemoryUse",
    "Signature",
    "Task",
    "TensorSpec",
    "TimingPolicy",
    "comparable",
]
