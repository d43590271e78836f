"""Engines that run a model on this device: one file each, one protocol.

An engine is made by `create`, then `load`, then any number of `bind`, `invoke`, `outputs`. Only `invoke`
is timed, so everything that is not inference (conversion of inputs, copies out) belongs to the others.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any, Dict, List, Protocol, Sequence

from device_agent.errors import AgentError
from device_agent.wire.frames import TensorData

NAMES = ("tvm", "onnxruntime", "litert", "torch", "openvino", "tensorrt", "ncnn")
# Those that a board has or has not; they come with its system, not from a host.
OF_THE_BOARD = ("tensorrt",)
# The entry points of packages that add engines.
GROUP = "edgetlm.engines"


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
    own = name in NAMES
    found = {} if own else installed()
    if not own and name not in found:
        raise AgentError("bad_request", "no engine %s; engines are %s" % (name, ", ".join((*NAMES, *found))))
    path = "device_agent.execute.engines.%s_engine" % name if own else found[name]
    try:
        return importlib.import_module(path).create()
    except ImportError as error:
        raise AgentError("engine", "%s cannot be used on this device: %s" % (name, error)) from error


def installed() -> Dict[str, str]:
    """Modules by name of the engines that packages on this device add by the entry point `edgetlm.engines`.

    Such a module has `TITLE`, the `FORMATS` that it reads, `MODULES` (any one of which has to be there) and
    `create()`, which returns an `Engine`. The host reads the first three, the device calls the last.
    """
    found = metadata.entry_points()
    # Python 3.8 and 3.9 have a dictionary of groups here.
    group = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ())
    return {entry.name: entry.value for entry in group}


def check_count(given: int, expected: int) -> None:
    """Raises AgentError unless as many inputs were given as the model takes."""
    if given != expected:
        raise AgentError("bad_request", "%d inputs given, the model takes %d" % (given, expected))


def fails(action: str, path: str, error: BaseException) -> AgentError:
    """The error for an engine that could not do something with a model."""
    text = " ".join(str(error).split()) or type(error).__name__
    return AgentError("engine", "%s %s: %s" % (action, path, text[:400]))
