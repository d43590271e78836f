"""TVM's virtual machine: the compiled model of a bundle, with its parameters mapped from their file."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from device_agent.contract.manifest import PARAMETERS
from device_agent.execute import ffi
from device_agent.execute.model_signature import LengthRange, Signature, TensorInfo
from device_agent.store.opened_bundle import BundleError, OpenedBundle
from device_agent.wire.frames import tensor_bytes

# The prefix of the machine's own calls, which compute nothing that the author of a model would recognise.
BUILTIN = "vm.builtin."


def signature_of(fields: Mapping[str, Any]) -> Signature:
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
    """The weights of a bundle, mapped from the file: pages are shared, and read when first used."""

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
    """The tensors in the machine's result, which is one tensor or a (possibly nested) tuple of tensors."""
    if hasattr(result, "shape"):
        return [result]
    return [tensor for part in result for tensor in tensors_of(part)]


class VirtualMachine:
    """A compiled relax module on one device, called with the same tensors again and again.

    Attributes:
        inputs: the tensors that a call reads. Their length is the one set last, at first the greatest.
        invoke: runs one inference with the inputs; on a GPU, returns when the GPU has finished.
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
        self._machine, self.invoke = self._instance(self._module)

    def set_length(self, length: int) -> None:
        """Makes inputs for one length and discards the old ones. Does nothing if it is set already."""
        if length == self._length:
            return
        self.inputs = [ffi.empty(info.shape_at(length), info.dtype, self._device) for info in self._infos]
        self.invoke = self._bound(self._machine)
        self._length = length

    def _instance(self, library: Any) -> Tuple[Any, Any]:
        machine = library["vm_load_executable"]()
        # Device type 1 is the CPU, 2 a CUDA GPU. Allocator 2 is the pooled one. The CPU always comes last.
        machine["vm_initialization"](*((2, 0, 2) if self._on_gpu else ()), 1, 0, 2)
        return machine, self._bound(machine)

    def _moved(self, tensor: Any) -> Any:
        """A parameter on the machine's device: the tensor itself on the CPU, a copy on a GPU."""
        if not self._on_gpu:
            return tensor
        copy = ffi.empty(tensor.shape, str(tensor.dtype), self._device)
        ffi.copy(tensor, copy)
        # The copy is asynchronous, so the source must stay valid until the copy has been made.
        ffi.synchronise(self._device)
        return copy

    def synchronise(self) -> None:
        """Waits for the GPU, if there is one. Calls on the CPU are always complete."""
        if self._on_gpu:
            ffi.synchronise(self._device)

    def _bound(self, machine: Any) -> Any:
        # A saved closure binds the arguments once, so that a call does not pass hundreds of weights.
        machine["save_function"]("main", "edgetlm_main", 1, *self.inputs, *self._parameters)
        call = machine["edgetlm_main"]
        if not self._on_gpu:
            return call

        def invoke() -> Any:
            result = call()
            ffi.synchronise(self._device)
            return result

        return invoke

    def instrumented(self, callback: Any, library: Optional[Any] = None) -> Any:
        """The model as a function that reports each kernel.

        Args:
            callback: called as `callback(function, name, before, result, *arguments)` before and after each
                call that the machine makes.
            library: loaded library of the same model with other kernels; by default the model's own.

        Returns:
            A function without arguments, which runs one inference with the present inputs.
        """
        # A separate machine, because an instrument cannot be removed from a machine.
        machine, invoke = self._instance(self._module if library is None else library)
        machine["set_instrument"](callback)
        return invoke


def load_machine(opened: OpenedBundle, threads: int) -> Tuple[Signature, VirtualMachine]:
    """Loads a checked bundle of the tvm backend.

    Args:
        opened: the bundle.
        threads: size of TVM's thread pool; decided by TVM_NUM_THREADS if it is set, else by the first bundle
            that the process loads.

    Raises:
        BundleError: the parameters do not fit their file.
    """
    fields, folder = opened.bundle.manifest.fields, opened.bundle.directory
    # TVM reads this when its thread pool starts, at the first parallel loop.
    os.environ.setdefault("TVM_NUM_THREADS", str(threads))
    ffi.load_runtime()
    signature = signature_of(fields)
    parameters = _Parameters(os.path.join(folder, PARAMETERS), fields.get("parameters", []))
    kind = "cuda" if fields.get("target", {}).get("kind") == "cuda" else "cpu"
    library = os.path.join(folder, opened.bundle.manifest.model)
    return signature, VirtualMachine(library, parameters.tensors, signature.inputs, kind)
