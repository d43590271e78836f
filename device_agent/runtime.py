"""Runs an installed bundle: what an application on the board imports.

    import device_agent.runtime
    model = device_agent.runtime.load("/path/to/bundle")
    outputs = model.run({"input": array})

A bundle of the tvm backend needs `tvm_ffi` and libtvm_runtime.so; NumPy is optional. A bundle of another
backend needs that engine. Before anything of a bundle is used, its manifest, its signature and every file are
checked, and whether this device trusts its signer. The manifest's fields are described in
`device_agent.contract.manifest`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import warnings
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from device_agent.contract.manifest import PARAMETERS
from device_agent.execute import ffi
from device_agent.execute.model_signature import LengthRange, Signature, TensorInfo
from device_agent.store.opened_bundle import BundleError, OpenedBundle, open_bundle
from device_agent.wire.frames import TensorData, tensor_bytes

__all__ = ["BundleError", "Model", "VirtualMachine", "load", "tensors_of"]
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


def _signature(fields: Mapping[str, Any]) -> Signature:
    """The signature in a checked manifest."""

    def infos(entries: Sequence[Dict[str, Any]]) -> Tuple[TensorInfo, ...]:
        return tuple(
            TensorInfo(e["name"], tuple(e["shape"]), e["dtype"], tuple(e.get("open", ()))) for e in entries
        )

    signature = fields["signature"]
    part = signature.get("length")
    length = LengthRange(part["name"], part["low"], part["high"]) if part else None
    return Signature(infos(signature["inputs"]), infos(signature["outputs"]), length)


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
            if offset + tensor_bytes(shape, dtype) > len(self._map):
                raise BundleError("parameter %d at offset %d does not fit %s" % (index, offset, path))
            self.tensors.append(ffi.view_of(base + offset, shape, dtype, anchor))


def tensors_of(result: Any) -> List[Any]:
    """The tensors in what the machine returned: one, or a (possibly nested) tuple of them."""
    if hasattr(result, "shape"):
        return [result]
    return [tensor for part in result for tensor in tensors_of(part)]


class VirtualMachine:
    """A compiled relax module on one device, called with the same tensors again and again.

    Attributes:
        inputs: the tensors that a call reads, of the length set last (at first the greatest).
        invoke: one inference with them; on a GPU it returns when the GPU has done it.
    """

    def __init__(
        self, library: str, parameters: Sequence[Any], inputs: Sequence[TensorInfo], kind: str = "cpu"
    ) -> None:
        self._device = ffi.device_of(kind)
        self._on_gpu = kind == "cuda"
        self._parameters = [self._moved(tensor) for tensor in parameters]
        self._infos = list(inputs)
        self._length = 0
        self.inputs = [ffi.empty(info.shape, info.dtype, self._device) for info in inputs]
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            extra = view.find(b"tvm.contrib.") >= 0
        self._ffi = ffi.load_runtime(extra)
        self._module = self._ffi.load_module(library)
        self._machine, self.invoke = self._instance()

    def set_length(self, length: int) -> None:
        """Makes the inputs of one length; what they held is lost. Does nothing where it is set already."""
        if length == self._length:
            return
        self.inputs = [ffi.empty(info.shape_at(length), info.dtype, self._device) for info in self._infos]
        self.invoke = self._bound(self._machine)
        self._length = length

    def _instance(self) -> Tuple[Any, Any]:
        machine = self._module["vm_load_executable"]()
        # Device type 1 is the CPU, 2 a CUDA GPU; allocator 2 is the pooled one. The CPU is always the last.
        machine["vm_initialization"](*((2, 0, 2) if self._on_gpu else ()), 1, 0, 2)
        return machine, self._bound(machine)

    def _moved(self, tensor: Any) -> Any:
        """A parameter where the machine computes: as it is on the CPU, a copy on a GPU."""
        if not self._on_gpu:
            return tensor
        copy = ffi.empty(tensor.shape, str(tensor.dtype), self._device)
        ffi.copy(tensor, copy)
        # The original's memory may be gone when a copy that was only asked for is made.
        ffi.synchronise(self._device)
        return copy

    def synchronise(self) -> None:
        """Waits for the GPU, where there is one; the CPU never has work outstanding."""
        if self._on_gpu:
            ffi.synchronise(self._device)

    def _bound(self, machine: Any) -> Any:
        # A saved closure binds the arguments once: a call then passes none of the hundreds of weights.
        machine["save_function"]("main", "edgetlm_main", 1, *self.inputs, *self._parameters)
        call = machine["edgetlm_main"]
        if not self._on_gpu:
            return call

        def invoke() -> Any:
            result = call()
            ffi.synchronise(self._device)
            return result

        return invoke

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
    """A bundle, loaded. Not for use by several threads at once; calls wait for one another.

    Args:
        opened: the bundle.
        threads: threads it may use; by default those it was measured with.

    Attributes:
        warning: one line where the bundle is used without trust in its signer, else None.
    """

    def __init__(self, opened: OpenedBundle, threads: Optional[int] = None) -> None:
        bundle, self.warning = opened
        manifest = bundle.manifest
        self.signature = _signature(manifest.fields)
        self.backend = manifest.backend
        self.path = bundle.directory
        self._lock = threading.Lock()
        count = int(threads or manifest.threads)
        model_file = os.path.join(self.path, manifest.model)
        self._engine: Any = None
        self.machine: Optional[VirtualMachine] = None
        if self.backend == "tvm":
            self._load_tvm(model_file, manifest.fields, count)
        else:
            from device_agent.execute.engines import create

            self._engine = create(self.backend)
            self._engine.load(model_file, count)

    def _load_tvm(self, library: str, fields: Mapping[str, Any], threads: int) -> None:
        # Read by TVM when its thread pool starts, at the first parallel loop.
        os.environ.setdefault("TVM_NUM_THREADS", str(threads))
        ffi.load_runtime()
        parameters = _Parameters(os.path.join(self.path, PARAMETERS), fields.get("parameters", []))
        kind = "cuda" if fields.get("target", {}).get("kind") == "cuda" else "cpu"
        self.machine = VirtualMachine(library, parameters.tensors, self.signature.inputs, kind)

    def run(self, inputs: Union[Mapping[str, Any], Sequence[Any]]) -> Dict[str, Any]:
        """One inference.

        Args:
            inputs: arrays by name or in order; anything with the buffer protocol or DLPack.

        Returns:
            Outputs by name: NumPy arrays where the process has imported NumPy, else tensors that
            speak DLPack.

        Raises:
            ValueError: an input is missing, unknown, of another shape or type, or of a length outside the
                bundle's range.
        """
        named = zip(self.signature.inputs, self._ordered(inputs))
        given = [_Given.of(info, value, self.machine is not None) for info, value in named]
        length = self.signature.length_of([(one.shape, one.dtype) for one in given])
        with self._lock:
            if self.machine is None:
                self._engine.bind([one.data() for one in given])
                self._engine.invoke()
                results = [_from_data(tensor) for tensor in self._engine.outputs()]
            else:
                self.machine.set_length(length)
                for tensor, one in zip(self.machine.inputs, given):
                    one.copy_to(tensor)
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


def load(
    path: Union[str, "os.PathLike[str]"],
    threads: Optional[int] = None,
    trust: str = "signed",
    keys: Union[str, "os.PathLike[str]", None] = None,
) -> Model:
    """Loads a bundle from its directory, after every file of it has been checked.

    A check reads the files once a boot and after a change; what was checked is remembered beside the keys.

    Args:
        path: the bundle.
        threads: threads it may use; by default those it was measured with. For the tvm backend the
            first bundle of a process decides, as does TVM_NUM_THREADS where it is set.
        trust: "signed": only what a host signed that this device trusts; "unsigned": anybody's bundle, which
            runs as this user, with a warning.
        keys: file of the trusted keys; by default `trust.json` of this user's agent (or of EDGETLM_STORE).

    Raises:
        BundleError: the bundle is damaged, incomplete, of another schema version, revoked, or not trusted.
        AgentError: its engine is not installed.
    """
    opened = open_bundle(os.path.abspath(os.fspath(path)), trust, os.fspath(keys) if keys else None)
    if opened.warning:
        warnings.warn(opened.warning, stacklevel=2)
    return Model(opened, threads)


class _Given(NamedTuple):
    """An input as the caller gave it: by the buffer protocol, or else by DLPack."""

    shape: Tuple[int, ...]
    dtype: str
    view: Optional[memoryview]
    tensor: Any

    @staticmethod
    def of(info: TensorInfo, value: Any, with_tvm: bool) -> "_Given":
        try:
            view = memoryview(value)
        except TypeError:
            if not hasattr(value, "__dlpack__"):
                raise ValueError(
                    "input %s is a %s; give an array with the buffer protocol or DLPack"
                    % (info.name, type(value))
                ) from None
            if not with_tvm:
                import numpy

                return _Given.of(info, numpy.from_dlpack(value).data, with_tvm)
            tensor = ffi.load_runtime().from_dlpack(value, require_contiguous=True)
            return _Given(tuple(int(d) for d in tensor.shape), str(tensor.dtype), None, tensor)
        dtype = _FORMATS.get(view.format.lstrip("@=<") if view.format else "B", view.format)
        return _Given(tuple(view.shape or ()), str(dtype), view, None)

    def copy_to(self, tensor: Any) -> None:
        if self.view is not None:
            ffi.copy_from_buffer(tensor, self.view)
        else:
            ffi.copy(self.tensor, tensor)

    def data(self) -> TensorData:
        if self.view is not None:
            return TensorData(self.shape, self.dtype, self.view.tobytes())
        size = tensor_bytes(self.shape, self.dtype)
        return TensorData(self.shape, self.dtype, ffi.to_bytes(self.tensor, size))


def _from_data(tensor: TensorData) -> Any:
    import numpy

    return numpy.frombuffer(tensor.data, dtype=tensor.dtype).reshape(tensor.shape)


def _to_array(tensor: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return tensor
    shape, dtype = tuple(tensor.shape), str(tensor.dtype)
    if dtype == "bool" or "cpu" not in str(tensor.device):
        # NumPy before 1.25 does not take booleans by DLPack, and none takes what lies on a GPU.
        return numpy.frombuffer(ffi.to_bytes(tensor, tensor_bytes(shape, dtype)), dtype=dtype).reshape(shape)
    return numpy.from_dlpack(tensor)
