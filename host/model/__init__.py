"""The types that packages of the host exchange, frozen dataclasses; docs/architecture.md has their makers."""

from __future__ import annotations

from host.model.call_graph import CallGraph, KernelCall
from host.model.imported import Decoder, ImportedModel
from host.model.layer import Layer, layer_of
from host.model.measurement import Energy, Measurement, Start, comparable
from host.model.signature import HALF_SPREADS, GoldenCase, LengthRange, Signature, TensorSpec
from host.model.site import Site
from host.model.task import Candidate, DeviceProfile, LoweredModel, MemoryUse, Task
from host.model.timing import BOARD, EMULATOR, SIMULATION, TimingPolicy

__all__ = [
    "BOARD",
    "EMULATOR",
    "HALF_SPREADS",
    "SIMULATION",
    "CallGraph",
    "Candidate",
    "Decoder",
    "DeviceProfile",
    "Energy",
    "GoldenCase",
    "ImportedModel",
    "KernelCall",
    "Layer",
    "LengthRange",
    "LoweredModel",
    "Measurement",
    "MemoryUse",
    "Signature",
    "Site",
    "Start",
    "Task",
    "TensorSpec",
    "TimingPolicy",
    "comparable",
    "layer_of",
]
