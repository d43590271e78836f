"""LiteRT (ai-edge-litert), or tflite-runtime where ai-edge-litert is not installed, for .tflite files."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from device_agent.contract.quiet import import_quietly
from device_agent.execute.engines import check_count, fails
from device_agent.wire.frames import TensorData


class LiteRtEngine:
    """One interpreter. Both packages use XNNPACK by default."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._interpreter: Any = None
        self._options: Dict[str, Any] = {}

    def unoptimised(self) -> None:
        """Without XNNPACK: see Engine."""
        kinds = self._package.OpResolverType
        self._options = {"experimental_op_resolver_type": kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES}

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine."""
        try:
            self._interpreter = self._package.Interpreter(
                model_path=path, num_threads=threads, **self._options
            )
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise fails("litert cannot load", path, error) from error
        return {
            "inputs": [self._info(entry) for entry in self._interpreter.get_input_details()],
            "outputs": [self._info(entry) for entry in self._interpreter.get_output_details()],
        }

    @staticmethod
    def _info(entry: Dict[str, Any]) -> Dict[str, Any]:
        import numpy

        dtype = str(numpy.dtype(entry["dtype"]))
        return {"name": entry["name"], "shape": [int(d) for d in entry["shape"]], "dtype": dtype}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        from device_agent.execute.engines.arrays import to_array

        details = self._interpreter.get_input_details()
        check_count(len(inputs), len(details))
        try:
            for entry, tensor in zip(details, inputs):
                self._interpreter.set_tensor(entry["index"], to_array(tensor))
        except (ValueError, RuntimeError) as error:
            raise fails("litert cannot take inputs of", "the model", error) from error

    def invoke(self) -> None:
        """See Engine."""
        try:
            self._interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise fails("litert cannot run", "the model", error) from error

    def outputs(self) -> List[TensorData]:
        """See Engine."""
        from device_agent.execute.engines.arrays import from_array

        details = self._interpreter.get_output_details()
        return [from_array(self._interpreter.get_tensor(entry["index"])) for entry in details]


def create() -> LiteRtEngine:
    """Creates an engine.

    Raises:
        ImportError: neither package is installed.
    """
    for name in ("ai_edge_litert.interpreter", "tflite_runtime.interpreter"):
        try:
            return LiteRtEngine(import_quietly(name))
        except ModuleNotFoundError:
            continue
    raise ImportError("neither ai-edge-litert nor tflite-runtime is installed")
