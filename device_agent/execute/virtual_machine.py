"""TVM's virtual machine: the compiled model of a bundle, with its parameters mapped from their file."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from device_agent.contract.manifest import PARAMETERS
from device_agent.execute import ffi, shared_memory
from device_agent.execute.cuda_graph import GraphedCall
from device_agent.execute.kept_prompt import StateTensor
from device_agent.execute.memory import pages, side_by_side
from device_agent.execute.memory.free_memory import require_free
from device_agent.execute.model_signature import LengthRange, Signature, TensorInfo
from device_agent.store.opened_bundle import BundleError, OpenedBundle
from device_agent.wire.frames import tensor_bytes

# Places of state tensors: multiples of a line of the caches, and of any vector.
_ALIGNED = 64
# Functions of a library beside each function of a model that has fixed sizes, on a CPU: one makes the tensors
# between its kernels, and one takes them behind the parameters instead of making them in every call.
_TENSORS, _LENT = "edgetlm_tensors_%s", "edgetlm_lent_%s"


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


def state_of(fields: Mapping[str, Any]) -> Tuple[TensorInfo, ...]:
    """The state tensors of a model, from a checked manifest."""
    return tuple(TensorInfo(e["name"], tuple(e["shape"]), e["dtype"], ()) for e in fields.get("state", ()))


class _Parameters:
    """The weights of a bundle.

    They are mapped from the file: pages are shared, and read when first used. Those of a language model, and
    of another one that reads most of them once in a call, are copied to huge pages where the system has these
    and the memory.
    """

    def __init__(self, path: str, entries: Sequence[Dict[str, Any]], streamed: bool = False) -> None:
        self.tensors: List[Any] = []
        if not entries:
            return
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if streamed and pages.has_huge_pages() and pages.has_room(size):
                    anchor, base = pages.zeroed(size)
                    size = file.readinto(anchor)
                else:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                    anchor = ctypes.c_char.from_buffer(self._map)
                    base = ctypes.addressof(anchor)
        except (OSError, ValueError) as error:
            raise BundleError("%s cannot be mapped: %s" % (path, error)) from error
        for index, entry in enumerate(entries):
            shape, dtype, offset = tuple(entry["shape"]), str(entry["dtype"]), int(entry["offset"])
            if offset + tensor_bytes(shape, dtype) > size:
                raise BundleError("parameter %d at offset %d does not fit %s" % (index, offset, path))
            self.tensors.append(ffi.view_of(base + offset, shape, dtype, anchor))


class _Zeros:
    """Tensors that are zeros, side by side in huge pages, which the system gives when they are first used."""

    def __init__(self, infos: Sequence[TensorInfo]) -> None:
        self.tensors: List[Any] = []
        sizes = [tensor_bytes(info.shape, info.dtype) for info in infos]
        places = [0]
        for size in sizes:
            places.append(places[-1] + -(-size // _ALIGNED) * _ALIGNED)
        self._size = places[-1]
        if not infos:
            return
        try:
            self._anchor, self._address = pages.zeroed(self._size)
        except (OSError, ValueError, OverflowError) as error:
            raise BundleError("no memory for the state of %d bytes: %s" % (self._size, error)) from error
        for info, place in zip(infos, places):
            self.tensors.append(ffi.view_of(self._address + place, info.shape, info.dtype, self._anchor))

    def clear(self) -> None:
        """Sets all state tensors to zero."""
        if self._size:
            ctypes.memset(self._address, 0, self._size)


def tensors_of(result: Any) -> List[Any]:
    """The tensors in the machine's result, which is one tensor or a (possibly nested) tuple of tensors."""
    if hasattr(result, "shape"):
        return [result]
    return [tensor for part in result for tensor in tensors_of(part)]


class Entry(NamedTuple):
    """A function of a model, with the tensors that a call of it reads.

    Attributes:
        inputs: to be filled before a call.
        invoke: runs it; on a GPU, returns when the GPU has finished.
    """

    inputs: List[Any]
    invoke: Any


class VirtualMachine:
    """A compiled relax module on one device, called with the same tensors again and again.

    Args:
        library: path of the compiled model.
        parameters: its weights, in order.
        inputs: what `main` takes.
        kind: device that it is for, "cpu" or "cuda".
        state: tensors that `main` and every other entry take behind their inputs and change. Zeros at first,
            kept from call to call.
        texts: number of such states; `main` has the first.

    Attributes:
        inputs: the tensors that a call reads. Their length is the one set last, at first the greatest.
        invoke: runs one inference with the inputs; on a GPU, returns when the GPU has finished.
        on_gpu: whether it is for a GPU.
    """

    def __init__(
        self,
        library: str,
        parameters: Sequence[Any],
        inputs: Sequence[TensorInfo],
        kind: str = "cpu",
        state: Sequence[TensorInfo] = (),
        texts: int = 1,
    ) -> None:
        self._device = ffi.device_of(kind)
        self.on_gpu = kind == "cuda"
        self._parameters = self._moved(parameters)
        self._infos = list(inputs)
        self._length = 0
        if self.on_gpu:
            shared_memory.offer()
        self.inputs = [self._input(info.shape, info.dtype) for info in inputs]
        self._zeros = [_Zeros(state) for _ in range(texts)]
        self._state_bytes = [tensor_bytes(info.shape, info.dtype) for info in state]
        self._states = [self._moved(zeros.tensors) for zeros in self._zeros]
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            extra = view.find(b"tvm.contrib.") >= 0
        self._ffi = ffi.load_runtime(extra)
        self._module = self._ffi.load_module(library)
        self._machine = self._instance(self._module)
        self._between: Dict[str, List[Any]] = {}
        self.invoke = self._bound()

    @property
    def launch(self) -> str:
        """How the kernels of a GPU are started by `invoke`; empty on the CPU."""
        return self.invoke.launch if isinstance(self.invoke, GraphedCall) else ""

    def set_length(self, length: int) -> None:
        """Makes inputs for one length and discards the old ones. Does nothing if it is set already."""
        if length == self._length:
            return
        self.inputs = [self._input(info.shape_at(length), info.dtype) for info in self._infos]
        self.invoke = self._bound()
        self._length = length

    @property
    def state(self) -> List[StateTensor]:
        """The tensors that are kept from call to call, of the first text."""
        return [StateTensor(*one) for one in zip(self._states[0], self._state_bytes)]

    def record(self) -> None:
        """Records the graph of `invoke`, on a GPU, by two runs with inputs that are zeros.

        Models with state are left as they are, since a run changes the state; so are ranges of lengths, whose
        graph is of one length. Their second run records.

        Raises:
            AgentError, RuntimeError: a kernel fails.
        """
        if not self.on_gpu or self._state_bytes or any(info.open for info in self._infos):
            return
        for info, tensor in zip(self._infos, self.inputs):
            ffi.copy_from_buffer(tensor, bytes(tensor_bytes(info.shape, info.dtype)))
        for _ in range(2):
            self.invoke()

    def reset(self) -> None:
        """Makes the state zeros again, as it is when the model is loaded.

        A language model needs none of it before a new text: what it reads at a position it has written since
        position 0.
        """
        for zeros, state in zip(self._zeros, self._states):
            zeros.clear()
            for source, tensor in zip(zeros.tensors, state if self.on_gpu else ()):
                ffi.copy(source, tensor)

    def copy_state(self, source: int, target: int) -> None:
        """Gives one text the state of another one.

        Args:
            source: number of the one.
            target: number of the other.
        """
        for given, tensor in zip(self._states[source], self._states[target]):
            ffi.copy(given, tensor)
        self.synchronise()

    def entry(self, name: str, inputs: Sequence[TensorInfo], texts: Sequence[int] = (0,)) -> "Entry":
        """A function of the library, with inputs of its own and this machine's state and parameters.

        Args:
            name: of the function.
            inputs: that it takes before the state.
            texts: numbers of those whose states it takes, in order.
        """
        tensors = [self._input(info.shape, info.dtype) for info in inputs]
        return Entry(tensors, self._graphed(name, tensors, texts))

    def _instance(self, library: Any) -> Any:
        machine = library["vm_load_executable"]()
        # Device type 1 is the CPU, 2 a CUDA GPU. Allocator 2 is the pooled one. The CPU always comes last.
        machine["vm_initialization"](*((2, 0, 2) if self.on_gpu else ()), 1, 0, 2)
        return machine

    def _input(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor that the processor writes and the machine's device reads."""
        return shared_memory.tensor(shape, dtype) if self.on_gpu else ffi.empty(shape, dtype)

    def _moved(self, tensors: Sequence[Any]) -> List[Any]:
        """Tensors on the machine's device: they themselves on the CPU, copies on a GPU."""
        return side_by_side.copied(tensors, self._device) if self.on_gpu else list(tensors)

    def synchronise(self) -> None:
        """Waits for the GPU, if there is one. Calls on the CPU are always complete."""
        if self.on_gpu:
            shared_memory.synchronise()

    def _closure(
        self,
        machine: Any,
        name: str,
        inputs: Sequence[Any],
        texts: Sequence[int] = (0,),
        between: Sequence[Any] = (),
    ) -> Any:
        # A saved closure binds the arguments once, so that a call does not pass hundreds of weights.
        saved = "edgetlm_%s_%s" % (name, "_".join(map(str, texts)))
        state = [tensor for text in texts for tensor in self._states[text]]
        function = _LENT % name if between else name
        machine["save_function"](function, saved, 1, *inputs, *state, *self._parameters, *between)
        return machine[saved]

    def _tensors_between(self, name: str) -> List[Any]:
        """The tensors between the kernels of a function, for all its calls; none where it makes its own.

        Calls of one machine never overlap. What a function returns is never among them.
        """
        if name not in self._between:
            made = _TENSORS % name
            there = not self.on_gpu and self._machine.implements_function(made)
            self._between[name] = list(self._machine[made]()) if there else []
        return self._between[name]

    def _bound(self) -> Any:
        return self._graphed("main", self.inputs)

    def _graphed(self, name: str, inputs: Sequence[Any], texts: Sequence[int] = (0,)) -> Any:
        """A function of the library bound to its tensors; on a GPU, one that waits until it has finished."""
        plain = self._closure(self._machine, name, inputs, texts, self._tensors_between(name))
        if not self.on_gpu:
            return plain
        tensors = list(inputs)

        def instrumented(instrument: Any) -> Any:
            machine = self._instance(self._module)
            machine["set_instrument"](instrument)
            return self._closure(machine, name, tensors, texts)

        return GraphedCall(self._device, plain, instrumented)

    def instrumented(self, callback: Any, library: Optional[Any] = None, as_invoked: bool = False) -> Any:
        """The model as a function that reports each kernel. It changes the same state.

        Args:
            callback: called as `callback(function, name, before, result, *arguments)` before and after each
                call that the machine makes.
            library: loaded library of the same model with other kernels; by default the model's own.
            as_invoked: whether the machine makes the calls that `invoke` makes. Otherwise it also makes each
                tensor, so that the callback knows which tensors have been written to.

        Returns:
            A function without arguments, which runs one inference with the present inputs.
        """
        # A separate machine, because an instrument cannot be removed from a machine.
        machine = self._instance(self._module if library is None else library)
        between = self._tensors_between("main") if as_invoked else ()
        call = self._closure(machine, "main", self.inputs, between=between)
        machine["set_instrument"](callback)

        def invoke() -> Any:
            result = call()
            self.synchronise()
            return result

        return invoke


def load_machine(
    opened: OpenedBundle, threads: int, mapped: bool = False
) -> Tuple[Signature, VirtualMachine]:
    """Loads a checked bundle of the tvm backend.

    Args:
        opened: the bundle.
        threads: size of TVM's thread pool; decided by TVM_NUM_THREADS if it is set, else by the first bundle
            that the process loads.
        mapped: whether weights are mapped from their file, even where a copy of them has room: processes
            that are compared are then alike, however many copies there is memory for.

    Raises:
        BundleError: the parameters do not fit their file, or a language model takes more than this machine
            has free.
    """
    fields, folder = opened.bundle.manifest.fields, opened.bundle.directory
    kind = "cuda" if fields.get("target", {}).get("kind") == "cuda" else "cpu"
    # TVM reads this when its thread pool starts, at the first parallel loop.
    os.environ.setdefault("TVM_NUM_THREADS", str(threads))
    # A GPU with memory of its own takes nothing of this machine's.
    if kind == "cpu" or shared_memory.is_shared():
        require_free(fields)
    ffi.load_runtime()
    signature = signature_of(fields)
    once = bool(fields.get("streamed") or fields.get("decoder"))
    streamed = kind == "cpu" and once and not mapped
    parameters = _Parameters(os.path.join(folder, PARAMETERS), fields.get("parameters", []), streamed)
    library = os.path.join(folder, opened.bundle.manifest.model)
    texts = int((fields.get("decoder") or {}).get("sequences", 1))
    state = state_of(fields)
    machine = VirtualMachine(library, parameters.tensors, signature.inputs, kind, state, texts)
    machine.record()
    return signature, machine
