"""ncnn, for a folder with one `.param` file and one `.bin` file of the same name, on the CPU.

ncnn's arrays have no batch axis. The engine removes the first axis of an input if its size is 1, and adds it
to the outputs again. ncnn's integers have 32 bits. Source: the documentation in ncnn's folder `python`.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Sequence

from device_agent.contract.quiet import import_quietly
from device_agent.errors import AgentError
from device_agent.execute.engines import check_count, fails
from device_agent.wire.frames import TensorData


class NcnnEngine:
    """A network that ncnn runs; see Engine."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._net: Any = None
        self._inputs: List[Any] = []
        self._batched = False
        self._results: List[Any] = []

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine. `path` is the folder; the files contain neither shapes nor types."""
        parameters, weights = _files(path)
        net = self._package.Net()
        net.opt.num_threads = threads
        net.opt.use_vulkan_compute = False
        if net.load_param(parameters) != 0 or net.load_model(weights) != 0:
            raise fails("ncnn cannot load", path, ValueError("see the agent's log"))
        self._net = net
        return {
            "inputs": [{"name": name} for name in net.input_names()],
            "outputs": [{"name": name} for name in net.output_names()],
        }

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        import numpy

        from device_agent.execute.engines.arrays import to_array

        check_count(len(inputs), len(self._net.input_names()))
        self._batched = all(len(tensor.shape) > 1 and tensor.shape[0] == 1 for tensor in inputs)
        self._inputs = []
        for tensor in inputs:
            array = to_array(tensor)
            if array.dtype == numpy.int64:
                array = array.astype(numpy.int32)
            array = array[0] if self._batched else array
            # The clone owns its data, so the source array may be freed.
            self._inputs.append(self._package.Mat(numpy.ascontiguousarray(array)).clone())

    def invoke(self) -> None:
        """See Engine."""
        extractor = self._net.create_extractor()
        for name, matrix in zip(self._net.input_names(), self._inputs):
            if extractor.input(name, matrix) != 0:
                raise AgentError("engine", "ncnn refuses the input %s" % name)
        self._results = []
        for name in self._net.output_names():
            code, matrix = extractor.extract(name)
            if code != 0:
                raise AgentError("engine", "ncnn cannot compute the output %s (code %d)" % (name, code))
            self._results.append(matrix)

    def outputs(self) -> List[TensorData]:
        """See Engine."""
        import numpy

        from device_agent.execute.engines.arrays import from_array

        arrays = [numpy.array(matrix) for matrix in self._results]
        return [from_array(array[numpy.newaxis] if self._batched else array) for array in arrays]


def _files(path: str) -> List[str]:
    """The paths of a network's two files.

    Raises:
        AgentError: there is not exactly one pair.
    """
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    stems = [name[: -len(".param")] for name in names if name.endswith(".param")]
    if len(stems) != 1 or stems[0] + ".bin" not in names:
        raise AgentError("engine", "%s is no folder with one .param and one .bin file of ncnn" % path)
    return [os.path.join(path, stems[0] + suffix) for suffix in (".param", ".bin")]


def create() -> NcnnEngine:
    """Creates an engine.

    Raises:
        ImportError: a package is missing.
    """
    import numpy  # noqa: F401 - a missing package is reported now, not at the first input

    return NcnnEngine(import_quietly("ncnn"))
