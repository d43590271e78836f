"""Engines that run a model on this device. Each engine is one file, and all have the same protocol.

`create` makes an engine. `load` is called once, then `bind`, `invoke` and `outputs` any number of times. Only
`invoke` is timed, so work that is not inference (converting inputs, copying outputs) belongs in the others.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Protocol, Sequence

from device_agent.contract.manifest import OF_THE_BOARD
from device_agent.errors import AgentError
from device_agent.wire.frames import TensorData

# Those of the board's system are not installed by a host.
NAMES = ("tvm", "onnxruntime", "litert", "torch", "openvino", "ncnn", *OF_THE_BOARD)
# The entry point group of packages that add engines.
GROUP = "edgetlm.engines"


class Engine(Protocol):
    """The operations of every engine.

    Two more are optional and come before `load`: `unoptimised()` turns graph optimisations off, `exact()`
    forgoes arithmetic that is faster and less exact. Reference outputs are computed with `exact()`. An engine
    in a process of its own may have `times_s(plan)`, which measures in place of `invoke`.
    """

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """Loads a model for a number of threads. Returns its signature as far as the engine knows it."""

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """Sets the inputs of the following inferences, in the model's order."""

    def invoke(self) -> None:
        """Runs one inference."""

    def outputs(self) -> List[TensorData]:
        """Returns the outputs of the last inference, in the model's order."""


def create(name: str) -> Any:
    """Creates an engine by its name.

    Raises:
        AgentError: there is no engine of that name, or its package is not installed on this device.
    """
    own = name in NAMES
    found = {} if own else installed()
    if not own and name not in found:
        raise AgentError("bad_request", "no engine %s; engines are %s" % (name, ", ".join((*NAMES, *found))))
    engine, _, way = name.partition("-") if own else (name, "", "")
    path = "device_agent.execute.engines.%s_engine" % engine if own else found[name]
    try:
        module = importlib.import_module(path)
        return module.create(way) if way else module.create()
    except ImportError as error:
        raise AgentError("engine", "%s cannot be used on this device: %s" % (name, error)) from error


def installed() -> Dict[str, str]:
    """Engines that packages on this device add by the entry point `edgetlm.engines`: module by engine name.

    Such a module has `TITLE`, the `FORMATS` that it reads, `MODULES` (at least one of which has to be
    installed) and `create()`, which returns an `Engine`. The host reads the first three. The device calls
    `create`.
    """
    # Reading packages takes a while, and most of what is asked of the agent needs none.
    from importlib import metadata

    found = metadata.entry_points()
    # In Python 3.8 and 3.9, this is a dictionary of groups.
    group = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ())
    return {entry.name: entry.value for entry in group}


def check_count(given: int, expected: int) -> None:
    """Checks that the number of given inputs is the number that the model takes.

    Raises:
        AgentError: the numbers differ.
    """
    if given != expected:
        raise AgentError("bad_request", "%d inputs given, the model takes %d" % (given, expected))


def fails(action: str, path: str, error: BaseException) -> AgentError:
    """The error of an engine that failed to do something with a model, as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return AgentError("engine", "%s %s: %s" % (action, path, text[:400]))
