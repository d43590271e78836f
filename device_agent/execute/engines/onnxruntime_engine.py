"""ONNX Runtime, for .onnx files; only the number of threads is not the default.

It runs on the CPU provider, or on a GPU with those of CUDA or TensorRT, where the board has a package with
them (`onnxruntime-gpu`, which NVIDIA builds for JetPack).
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Dict, List, Sequence

from device_agent.contract.quiet import import_quietly
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute.engines import check_count, fails
from device_agent.wire.frames import ITEM_BYTES, TensorData

_CPU = "CPUExecutionProvider"
# The provider asked for, then those for what it does not take.
_WAYS = {
    "": (_CPU,),
    "cuda": ("CUDAExecutionProvider", _CPU),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider", _CPU),
}
_TYPES = {"float": "float32", "double": "float64"}
# Numbers of ONNX's types (`TensorProto.DataType`) of whole bytes that NumPy lacks.
_ELEMENT_TYPES = {
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
    "float8_e8m0fnu": 24,
}


class OnnxRuntimeEngine:
    """An inference session of ONNX Runtime; see Engine."""

    def __init__(self, package: Any, providers: Sequence[str] = (_CPU,)) -> None:
        self._package = package
        self._providers = list(providers)
        self._session: Any = None
        self._feeds: Dict[str, Any] = {}
        self._results: List[Any] = []
        self._unoptimised = False
        self._exact = False
        self._by_values = False

    def unoptimised(self) -> None:
        """Makes the following loads do without graph optimisations, so that the graph runs node by node."""
        self._unoptimised = True

    def exact(self) -> None:
        """Makes the following loads compute sums of bytes exactly, which may be slower.

        ONNX Runtime multiplies bytes with VPMADDUBSW on x86-64 processors without VNNI. The instruction adds
        two products in 16 bits and saturates. Exact products are a graph optimisation, so a load without
        these has the others.
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
        self._require_provider()
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
        if self._unoptimised:
            options.graph_optimization_level = self._package.GraphOptimizationLevel.ORT_DISABLE_ALL
        return self._package.InferenceSession(path, options, providers=self._providers)

    def _require_provider(self) -> None:
        """Refuses a session without the provider that was asked for.

        ONNX Runtime drops a provider that does not start (a library of CUDA that is missing) with a warning
        and runs the model on the next one.
        """
        wanted, there = self._providers[0], self._session.get_providers()
        if wanted not in there:
            self._session = None
            raise AgentError(
                "engine",
                "onnxruntime's %s does not start on this device, and the model would run on %s instead; "
                "install the versions of CUDA, cuDNN and TensorRT that this onnxruntime-gpu was built for"
                % (wanted, printable(", ".join(there))),
            )

    @staticmethod
    def _info(entry: Any) -> Dict[str, Any]:
        return {"name": entry.name, "shape": list(entry.shape), "dtype": _name(entry.type)}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        from device_agent.execute.engines.arrays import to_array

        names = [entry.name for entry in self._session.get_inputs()]
        check_count(len(inputs), len(names))
        types = [_name(entry.type) for entry in self._session.get_inputs() + self._session.get_outputs()]
        self._by_values = any(one in _ELEMENT_TYPES for one in types)
        convert = self._value if self._by_values else to_array
        self._feeds = {name: convert(tensor) for name, tensor in zip(names, inputs)}

    def _value(self, tensor: TensorData) -> Any:
        """A tensor of ONNX Runtime's own, which has the types that NumPy lacks."""
        import numpy

        from device_agent.execute.engines.arrays import to_array

        values = self._package.OrtValue
        if tensor.dtype not in _ELEMENT_TYPES:
            return values.ortvalue_from_numpy(to_array(tensor))
        bits = numpy.frombuffer(bytearray(tensor.data), "uint%d" % (8 * ITEM_BYTES[tensor.dtype]))
        element = _ELEMENT_TYPES[tensor.dtype]
        return values.ortvalue_from_numpy_with_onnx_type(bits.reshape(tensor.shape), element)

    def invoke(self) -> None:
        """See Engine."""
        run = self._session.run_with_ort_values if self._by_values else self._session.run
        try:
            self._results = run(None, self._feeds)
        except Exception as error:  # see load
            raise fails("onnxruntime cannot run", "the model", error) from error

    def outputs(self) -> List[TensorData]:
        """See Engine."""
        from device_agent.execute.engines.arrays import from_array

        if self._by_values:
            return [_tensor(value) for value in self._results]
        return [from_array(result) for result in self._results]


def _name(kind: str) -> str:
    """The name of an element type, from that of ONNX Runtime: "float32" from "tensor(float)"."""
    inner = kind.replace("tensor(", "").rstrip(")")
    # ONNX Runtime leaves out what separates the parts of a name: "float8e5m2".
    own = {name.replace("_", ""): name for name in _ELEMENT_TYPES}
    return _TYPES.get(inner, own.get(inner, inner))


def _tensor(value: Any) -> TensorData:
    """The tensor of a value of ONNX Runtime, whose memory is read where NumPy has no type for it.

    Raises:
        AgentError: the elements are not numbers of whole bytes, or no tensor.
    """
    from device_agent.execute.engines.arrays import from_array

    name = _name(value.data_type())
    if name not in _ELEMENT_TYPES or name not in ITEM_BYTES:
        return from_array(value.numpy())
    shape = tuple(value.shape())
    size = math.prod(shape) * ITEM_BYTES[name]
    return TensorData(shape, name, ctypes.string_at(value.data_ptr(), size) if size else b"")


def create(way: str = "") -> OnnxRuntimeEngine:
    """Creates an engine.

    Args:
        way: "cuda" or "tensorrt" for the provider of that name; "" for the CPU.

    Raises:
        ImportError: the package is missing, or has no such provider.
    """
    package = import_quietly("onnxruntime")
    wanted = _WAYS[way]
    there = package.get_available_providers()
    if wanted[0] not in there:
        raise ImportError(
            "onnxruntime has no %s here (it has %s); install onnxruntime-gpu for this board"
            % (wanted[0], printable(", ".join(there)))
        )
    return OnnxRuntimeEngine(package, [name for name in wanted if name in there])
