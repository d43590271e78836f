"""The nouns of the host: one frozen dataclass each. See docs/architecture.md for who makes which."""

from __future__ import annotations

from host.model.imported import Decoder, ImportedModel
from host.model.measurement import Energy, Measurement, comparable
from host.model.signature import HALF_SPREADS, GoldenCase, LengthRange, Signature, TensorSpec
from host.model.task import Candidate, DeviceProfile, LoweredModel, MemoryUse, Task

__all__ = [
    "HALF_SPREADS",
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
    "comparable",
]
