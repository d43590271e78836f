"""OpenVINO, for .onnx files, on its CPU plugin, in fp32 like all other engines."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from device_agent.contract.quiet import import_quietly
from device_agent.execute.engines import check_count, fails
from device_agent.wire.frames import TensorData


class OpenVinoEngine:
    """One compiled model with one request."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._compiled: Any = None
        self._request: Any = None

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine."""
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            # On some processors, OpenVINO runs fp32 models in bf16 by default.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        try:
            self._compiled = self._package.Core().compile_model(path, "CPU", settings)
            self._request = self._compiled.create_infer_request()
        except Exception as error:  # RuntimeError and the package's own classes have no public base
            raise fails("openvino cannot load", path, error) from error
        return {
            "inputs": [self._info(port) for port in self._compiled.inputs],
            "outputs": [self._info(port) for port in self._compiled.outputs],
        }

    @staticmethod
    def _info(port: Any) -> Dict[str, Any]:
        import numpy

        shape = [d.get_length() if d.is_static else -1 for d in port.get_partial_shape()]
        name = next(iter(sorted(port.get_names())), "")
        return {"name": name, "shape": shape, "dtype": str(numpy.dtype(port.get_element_type().to_dtype()))}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        from device_agent.execute.engines.arrays import to_array

        check_count(len(inputs), len(self._compiled.inputs))
        for index, tensor in enumerate(inputs):
            self._request.set_input_tensor(index, self._package.Tensor(to_array(tensor)))

    def invoke(self) -> None:
        """See Engine."""
        try:
            self._request.infer()
        except Exception as error:  # see load
            raise fails("openvino cannot run", "the model", error) from error

    def outputs(self) -> List[TensorData]:
        """See Engine."""
        from device_agent.execute.engines.arrays import from_array

        count = len(self._compiled.outputs)
        return [from_array(self._request.get_output_tensor(index).data) for index in range(count)]


def create() -> OpenVinoEngine:
    """Creates an engine.

    Raises:
        ImportError: OpenVINO is missing.
    """
    return OpenVinoEngine(import_quietly("openvino"))
