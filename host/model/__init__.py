"""The types that packages of the host exchange, frozen dataclasses; docs/architecture.md has their makers."""

from __future__ import annotations

from host.model.imported import Decoder, ImportedModel
from host.model.layer import Layer, layer_of
from host.model.measurement import Energy, Measurement, Start, comparable
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
    "Layer",
    "LengthRange",
    "LoweredModel",
    "Measurement",
    "MemoryUse",
    "Signature",
    "Start",
    "Task",
    "TensorSpec",
    "comparable",
    "layer_of",
]
