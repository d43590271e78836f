"""ONNX Runtime, for .onnx files, on the CPU provider; only the number of threads is not the default."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from device_agent.contract.quiet import import_quietly
from device_agent.execute.engines import check_count, fails
from device_agent.wire.frames import TensorData

_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}


class OnnxRuntimeEngine:
    """An inference session of ONNX Runtime; see Engine."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._session: Any = None
        self._feeds: Dict[str, Any] = {}
        self._results: List[Any] = []
        self._as_written = False
        self._exact = False

    def as_written(self) -> None:
        """Makes the following loads keep the graph as written, so that it runs node by node."""
        self._as_written = True

    def exact(self) -> None:
        """Makes the following loads compute sums of bytes exactly, which may be slower.

        ONNX Runtime multiplies bytes with VPMADDUBSW on x86-64 processors without VNNI. The instruction adds
        two products in 16 bits and saturates. Exact products are a rewriting of the graph, so a graph that is
        kept as written has the others.
        """
        self._exact = True

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine."""
        try:
            self._session = self._opened(path, threads, self._exact)
        except Exception as error:  # onnxruntime raises a dozen of its own classes, which have no public base
            if not self._exact:
                raise fails("onnxruntime cannot load", path, error) from error
            # Its rewriting for exact products fails on some graphs (weights that others read too).
            self._exact = False
            return self.load(path, threads)
        return {
            "inputs": [self._info(entry) for entry in self._session.get_inputs()],
            "outputs": [self._info(entry) for entry in self._session.get_outputs()],
        }

    def _opened(self, path: str, threads: int, exact: bool) -> Any:
        options = self._package.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if exact:
            options.add_session_config_entry("session.x64quantprecision", "1")
        if self._as_written:
            options.graph_optimization_level = self._package.GraphOptimizationLevel.ORT_DISABLE_ALL
        return self._package.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    @staticmethod
    def _info(entry: Any) -> Dict[str, Any]:
        dtype = _TYPES.get(entry.type, entry.type.replace("tensor(", "").rstrip(")"))
        return {"name": entry.name, "shape": list(entry.shape), "dtype": dtype}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        from device_agent.execute.engines.arrays import to_array

        names = [entry.name for entry in self._session.get_inputs()]
        check_count(len(inputs), len(names))
        self._feeds = {name: to_array(tensor) for name, tensor in zip(names, inputs)}

    def invoke(self) -> None:
        """See Engine."""
        try:
            self._results = self._session.run(None, self._feeds)
        except Exception as error:  # see load
            raise fails("onnxruntime cannot run", "the model", error) from error

    def outputs(self) -> List[TensorData]:
        """See Engine."""
        from device_agent.execute.engines.arrays import from_array

        return [from_array(result) for result in self._results]


def create() -> OnnxRuntimeEngine:
    """Creates an engine.

    Raises:
        ImportError: the package is missing.
    """
    return OnnxRuntimeEngine(import_quietly("onnxruntime"))
