"""Runs an installed bundle: what an application on the board imports.

    import device_agent.runtime
    model = device_agent.runtime.load("/path/to/bundle")
    outputs = model.run({"input": array})

A bundle of the tvm backend needs `tvm_ffi` and libtvm_runtime.so; NumPy is optional. A bundle of another
backend needs that engine. What is read of `manifest.json`:

    schema        "edgetlm.bundle/1"
    backend       "tvm", "onnxruntime" or "litert"
    model         file of the model or library within the bundle
    signature     {"inputs": [{"name", "shape", "dtype"}, ...], "outputs": [...]}
    parameters    tvm: [{"offset", "shape", "dtype"}, ...] into params.bin, in the order of main's arguments
    threads       threads it was measured with
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from device_agent import ffi
from device_agent.wire import AgentError, TensorData, tensor_bytes

BUNDLE_SCHEMA = "edgetlm.bundle/1"
_FORMATS = {
    "?": "bool",
    "b": "int8",
    "B": "uint8",
    "h": "int16",
    "H": "uint16",
    "e": "float16",
    "i": "int32",
    "I": "uint32",
    "f": "float32",
    "l": "int64",
    "q": "int64",
    "L": "uint64",
    "Q": "uint64",
    "d": "float64",
}


class BundleError(AgentError):
    """A bundle that is damaged, incomplete or of another schema version."""

    def __init__(self, message: str) -> None:
        super().__init__("bundle", message)


class TensorInfo(NamedTuple):
    """Name, shape and element type of an input or output."""

    name: str
    shape: Tuple[int, ...]
    dtype: str


class Signature(NamedTuple):
    """What goes into a model and what comes out, in order."""

    inputs: Tuple[TensorInfo, ...]
    outputs: Tuple[TensorInfo, ...]


def read_manifest(directory: str) -> Dict[str, Any]:
    """The manifest of a bundle.

    Raises:
        BundleError: no bundle there, damaged, or of another schema version.
    """
    path = os.path.join(directory, "manifest.json")
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
    except FileNotFoundError as error:
        raise BundleError("%s is not a bundle: it has no manifest.json" % directory) from error
    except (OSError, ValueError) as error:
        raise BundleError("%s cannot be read: %s; build the bundle again" % (path, error)) from error
    if not isinstance(manifest, dict) or manifest.get("schema") != BUNDLE_SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise BundleError("%s has schema %s, this runtime reads %s" % (path, found, BUNDLE_SCHEMA))
    return manifest


def _signature(manifest: Dict[str, Any], directory: str) -> Signature:
    def infos(entries: Sequence[Dict[str, Any]]) -> Tuple[TensorInfo, ...]:
        return tuple(
            TensorInfo(str(e["name"]), tuple(int(d) for d in e["shape"]), str(e["dtype"])) for e in entries
        )

    try:
        signature = manifest["signature"]
        return Signature(infos(signature["inputs"]), infos(signature["outputs"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError("manifest.json in %s has no valid signature: %r" % (directory, error)) from error


class _Parameters:
    """The weights of a bundle, mapped from the file: pages are shared and read when first used."""

    def __init__(self, path: str, entries: Sequence[Dict[str, Any]]) -> None:
        self.tensors: List[Any] = []
        if not entries:
            return
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise BundleError("%s cannot be mapped: %s" % (path, error)) from error
        anchor = ctypes.c_char.from_buffer(self._map)
        base = ctypes.addressof(anchor)
        for index, entry in enumerate(entries):
            shape, dtype, offset = tuple(entry["shape"]), str(entry["dtype"]), int(entry["offset"])
            if offset % 64 or offset + tensor_bytes(shape, dtype) > len(self._map):
                raise BundleError("parameter %d at offset %d does not fit %s" % (index, offset, path))
            self.tensors.append(ffi.view_of(base + offset, shape, dtype, anchor))


def tensors_of(result: Any) -> List[Any]:
    """The tensors in what the machine returned: one, or a (possibly nested) tuple of them."""
    if hasattr(result, "shape"):
        return [result]
    return [tensor for part in result for tensor in tensors_of(part)]


class VirtualMachine:
    """A compiled relax module on the CPU, called with the same tensors again and again."""

    def __init__(self, library: str, parameters: Sequence[Any], inputs: Sequence[TensorInfo]) -> None:
        self._parameters = list(parameters)
        self.inputs = [ffi.empty(info.shape, info.dtype) for info in inputs]
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            extra = view.find(b"tvm.contrib.") >= 0
        self._ffi = ffi.load_runtime(extra)
        self._module = self._ffi.load_module(library)
        self._machine, self.invoke = self._instance()

    def _instance(self) -> Tuple[Any, Any]:
        machine = self._module["vm_load_executable"]()
        # Device type 1 is the CPU, allocator 2 the pooled one.
        machine["vm_initialization"](1, 0, 2)
        # A saved closure binds the arguments once: a call then passes none of the hundreds of weights.
        machine["save_function"]("main", "edgetlm_main", 1, *self.inputs, *self._parameters)
        return machine, machine["edgetlm_main"]

    def instrumented(self, callback: Any) -> Any:
        """The model as a function that reports each kernel.

        Args:
            callback: called as `callback(function, name, before, result, *arguments)` before
                and after each call that the machine makes.

        Returns:
            A function without arguments: one inference with the inputs as they are.
        """
        # A machine of its own: an instrument cannot be taken off again.
        machine, invoke = self._instance()
        machine["set_instrument"](callback)
        return invoke


class Model:
    """A bundle, loaded. Not for use by several threads at once; calls wait for one another."""

    def __init__(self, directory: str, threads: Optional[int] = None) -> None:
        manifest = read_manifest(directory)
        self.signature = _signature(manifest, directory)
        self.backend = str(manifest.get("backend"))
        self.path = directory
        self._lock = threading.Lock()
        count = int(threads or manifest.get("threads") or 1)
        model_file = os.path.join(directory, str(manifest.get("model", "lib.so")))
        if not os.path.isfile(model_file):
            raise BundleError("%s is missing its model file %s" % (directory, os.path.basename(model_file)))
        self._engine: Any = None
        self.machine: Optional[VirtualMachine] = None
        if self.backend == "tvm":
            self._load_tvm(model_file, manifest, count)
        else:
            from device_agent.engines import create

            self._engine = create(self.backend)
            self._engine.load(model_file, count)

    def _load_tvm(self, library: str, manifest: Dict[str, Any], threads: int) -> None:
        # Read by TVM when its thread pool starts, at the first parallel loop.
        os.environ.setdefault("TVM_NUM_THREADS", str(threads))
        ffi.load_runtime()
        entries = manifest.get("parameters", [])
        parameters = _Parameters(os.path.join(self.path, "params.bin"), entries)
        self.machine = VirtualMachine(library, parameters.tensors, self.signature.inputs)

    def run(self, inputs: Union[Mapping[str, Any], Sequence[Any]]) -> Dict[str, Any]:
        """One inference.

        Args:
            inputs: arrays by name or in order; anything with the buffer protocol or DLPack.

        Returns:
            Outputs by name: NumPy arrays where the process has imported NumPy, else tensors that
            speak DLPack.

        Raises:
            ValueError: an input is missing, unknown, or of another shape or type.
        """
        ordered = self._ordered(inputs)
        with self._lock:
            if self.machine is None:
                data = [_as_data(info, value) for info, value in zip(self.signature.inputs, ordered)]
                self._engine.bind(data)
                self._engine.invoke()
                results = [_from_data(tensor) for tensor in self._engine.outputs()]
            else:
                for info, tensor, value in zip(self.signature.inputs, self.machine.inputs, ordered):
                    _fill(info, tensor, value)
                results = [_to_array(tensor) for tensor in tensors_of(self.machine.invoke())]
        return {info.name: result for info, result in zip(self.signature.outputs, results)}

    def _ordered(self, inputs: Union[Mapping[str, Any], Sequence[Any]]) -> List[Any]:
        names = [info.name for info in self.signature.inputs]
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise ValueError("inputs are %s, the model takes %s" % (sorted(inputs), sorted(names)))
            return [inputs[name] for name in names]
        if len(inputs) != len(names):
            raise ValueError("%d inputs given, the model takes %d: %s" % (len(inputs), len(names), names))
        return list(inputs)


def load(path: Union[str, "os.PathLike[str]"], threads: Optional[int] = None) -> Model:
    """Loads a bundle from its directory.

    Args:
        path: the bundle.
        threads: threads it may use; by default those it was measured with. For the tvm backend the
            first bundle of a process decides, as does TVM_NUM_THREADS where it is set.

    Raises:
        BundleError: the bundle is damaged, incomplete or of another schema version.
        AgentError: its engine is not installed.
    """
    return Model(os.path.abspath(os.fspath(path)), threads)


def _mismatch(info: TensorInfo, shape: Sequence[int], dtype: str) -> ValueError:
    return ValueError(
        "input %s is %s%s, the model takes %s%s"
        % (info.name, dtype, list(shape), info.dtype, list(info.shape))
    )


def _buffer(info: TensorInfo, value: Any) -> Optional[memoryview]:
    try:
        view = memoryview(value)
    except TypeError:
        return None
    dtype = _FORMATS.get(view.format.lstrip("@=<") if view.format else "B", view.format)
    if view.shape != info.shape or dtype != info.dtype:
        raise _mismatch(info, view.shape or (), str(dtype))
    return view


def _fill(info: TensorInfo, tensor: Any, value: Any) -> None:
    view = _buffer(info, value)
    if view is not None:
        ffi.copy_from_buffer(tensor, view)
        return
    if not hasattr(value, "__dlpack__"):
        raise ValueError(
            "input %s is a %s; give an array with the buffer protocol or DLPack" % (info.name, type(value))
        )
    source = ffi.load_runtime().from_dlpack(value, require_contiguous=True)
    if tuple(source.shape) != info.shape or str(source.dtype) != info.dtype:
        raise _mismatch(info, tuple(source.shape), str(source.dtype))
    ffi.copy(source, tensor)


def _as_data(info: TensorInfo, value: Any) -> TensorData:
    view = _buffer(info, value)
    if view is None:
        import numpy

        view = numpy.from_dlpack(value).data
        _buffer(info, view)
    return TensorData(info.shape, info.dtype, view.tobytes())


def _from_data(tensor: TensorData) -> Any:
    import numpy

    return numpy.frombuffer(tensor.data, dtype=tensor.dtype).reshape(tensor.shape)


def _to_array(tensor: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return tensor
    shape, dtype = tuple(tensor.shape), str(tensor.dtype)
    if dtype == "bool":
        # NumPy before 1.25 does not take booleans by DLPack.
        return numpy.frombuffer(ffi.to_bytes(tensor, tensor_bytes(shape, dtype)), dtype=dtype).reshape(shape)
    return numpy.from_dlpack(tensor)
