"""Engines that run a model on this device: one file each, one protocol.

An engine is made by `create`, then `load`, then any number of `bind`, `invoke`, `outputs`. Only `invoke`
is timed, so everything that is not inference (conversion of inputs, copies out) belongs to the others.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Protocol, Sequence

from device_agent.errors import AgentError
from device_agent.wire.frames import TensorData

NAMES = ("tvm", "onnxruntime", "litert", "torch", "openvino", "tensorrt", "ncnn")
# Those that a board has or has not; they come with its system, not from a host.
OF_THE_BOARD = ("tensorrt",)


class Engine(Protocol):
    """What every engine does."""

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """Loads a model for a number of threads; returns its signature as far as the engine knows it."""

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """Sets the inputs of the following calls, in the model's order."""

    def invoke(self) -> None:
        """One inference."""

    def outputs(self) -> List[TensorData]:
        """Outputs of the last inference, in the model's order."""


def create(name: str) -> Any:
    """A new engine.

    Raises:
        AgentError: no engine of that name, or its package is not installed on this device.
    """
    if name not in NAMES:
        raise AgentError("bad_request", "no engine %s; engines are %s" % (name, ", ".join(NAMES)))
    module = importlib.import_module("device_agent.execute.engines.%s_engine" % name)
    try:
        return module.create()
    except ImportError as error:
        raise AgentError("engine", "%s cannot be used on this device: %s" % (name, error)) from error


def check_count(given: int, expected: int) -> None:
    """Raises AgentError unless as many inputs were given as the model takes."""
    if given != expected:
        raise AgentError("bad_request", "%d inputs given, the model takes %d" % (given, expected))


def fails(action: str, path: str, error: BaseException) -> AgentError:
    """The error for an engine that could not do something with a model."""
    text = " ".join(str(error).split()) or type(error).__name__
    return AgentError("engine", "%s %s: %s" % (action, path, text[:400]))
