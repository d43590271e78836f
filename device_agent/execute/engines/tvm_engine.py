"""TVM, for bundles of the tvm backend, on the same virtual machine that an application uses."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Set, Tuple

from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute import ffi
from device_agent.execute.engines import check_count, fails
from device_agent.execute.kernel_times import BUILTIN, KernelTimes
from device_agent.execute.model_signature import Function, Signature, functions_of
from device_agent.execute.shared_memory import BESIDE, TENSOR
from device_agent.execute.virtual_machine import Entry, VirtualMachine, load_machine, tensors_of
from device_agent.store.opened_bundle import OpenedBundle
from device_agent.wire.frames import TensorData, tensor_bytes

# Those of the machine's own calls that give a tensor which nothing has been written to.
_ALLOCATING = (BUILTIN + "alloc_tensor", BUILTIN + "ensure_zero_offset", TENSOR, BESIDE)


class TvmEngine:
    """A bundle's compiled model, which TVM's virtual machine runs; see Engine."""

    def __init__(self) -> None:
        self._signature: Any = None
        self._machine: Any = None
        self._result: Any = None
        self._functions: Dict[str, Function] = {}
        self._entries: Dict[str, Entry] = {}

    @property
    def machine(self) -> VirtualMachine:
        """The loaded model, with the inputs that were bound last."""
        machine: VirtualMachine = self._machine
        return machine

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """Always refuses, because TVM loads bundles only; see load_bundle."""
        raise AgentError("bad_request", "%s is not a bundle, and tvm loads nothing else" % path)

    def load_bundle(self, opened: OpenedBundle, threads: int, mapped: bool = False) -> Dict[str, Any]:
        """Loads a checked bundle and returns its signature.

        Args:
            opened: the bundle.
            threads: to compute with.
            mapped: see `load_machine`.

        Raises:
            AgentError: the bundle is of another backend, or TVM cannot load it.
        """
        try:
            self._signature, self._machine = load_machine(opened, threads, mapped)
        except (RuntimeError, OSError) as error:  # tvm_ffi's errors derive from RuntimeError
            raise fails("tvm cannot load", opened.bundle.directory, error) from error
        signature, decoder = self._signature, opened.bundle.manifest.fields.get("decoder")
        self._functions = {} if decoder is None else functions_of(decoder)
        self._entries = {}
        return {
            "inputs": [info._asdict() for info in signature.inputs],
            "outputs": [info._asdict() for info in signature.outputs],
        }

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        check_count(len(inputs), len(self._signature.inputs))
        try:
            length = self._signature.length_of([(given.shape, given.dtype) for given in inputs])
        except ValueError as error:
            raise AgentError("bad_request", str(error)) from error
        self._machine.set_length(length)
        for tensor, given in zip(self._machine.inputs, inputs):
            ffi.copy_from_buffer(tensor, given.data)

    def invoke(self) -> None:
        """See Engine."""
        self._result = self._machine.invoke()

    def call(self, name: str, inputs: Sequence[TensorData]) -> None:
        """Runs a function of a language model beside main, on the state that main has; see `outputs`.

        Args:
            name: of the function.
            inputs: that it takes before the states.

        Raises:
            AgentError: the loaded model has no such function, or the inputs are not its own.
        """
        function = self._functions.get(name)
        if function is None:
            raise AgentError("bad_request", "the loaded model has no function %s" % printable(name))
        check_count(len(inputs), len(function.inputs))
        try:
            Signature(function.inputs, ()).length_of([(given.shape, given.dtype) for given in inputs])
        except ValueError as error:
            raise AgentError("bad_request", str(error)) from error
        if name not in self._entries:
            self._entries[name] = self._machine.entry(name, function.inputs, range(function.texts))
        entry = self._entries[name]
        for tensor, given in zip(entry.inputs, inputs):
            ffi.copy_from_buffer(tensor, given.data)
        self._result = entry.invoke()

    @property
    def launch(self) -> str:
        """How the kernels of a GPU are started; empty on the CPU."""
        return self.machine.launch

    def outputs(self) -> List[TensorData]:
        """See Engine."""
        return [_data(tensor) for tensor in tensors_of(self._result)]

    def profile(self, runs: int) -> List[Dict[str, Any]]:
        """The time of each kernel inside the model, with the caches as the model leaves them.

        Args:
            runs: number of inferences to average over; one more runs first and is not counted.

        Returns:
            One entry for each kernel: `name`, `calls` in one inference, `seconds` in one inference.
        """
        times = KernelTimes(self._machine.synchronise)
        invoke = self._machine.instrumented(times, as_invoked=True)
        invoke()
        times.take()
        for _ in range(runs):
            invoke()
        return [
            {"name": name, "seconds": total.seconds / runs, "calls": total.calls // runs}
            for name, total in times.take().items()
        ]

    def intermediates(
        self, start: int, max_bytes: int
    ) -> Tuple[List[Dict[str, Any]], List[TensorData], bool]:
        """The outputs of the kernels in one inference, in the order of their calls.

        A kernel's outputs are those of its arguments that were allocated and not yet written to. A kernel
        without such arguments works in place, on its last tensor.

        Args:
            start: index of the first call to return.
            max_bytes: stop after the call with which this number of bytes is reached.

        Returns:
            For each call its `index`, `name` and number of `tensors`; the tensors; whether all were returned.
        """
        recorder = _Recorder(start, max_bytes)
        self._machine.instrumented(recorder)()
        return recorder.calls, recorder.tensors, recorder.complete


class _Recorder:
    """An instrument that copies what the kernels write."""

    def __init__(self, start: int, max_bytes: int) -> None:
        self.calls: List[Dict[str, Any]] = []
        self.tensors: List[TensorData] = []
        self.complete = True
        self._start = start
        self._left = max_bytes
        self._index = 0
        # Handles of tensors that no kernel has written to.
        self._fresh: Set[int] = set()

    def __call__(self, _function: Any, name: str, before: bool, result: Any, *arguments: Any) -> None:
        if before:
            return
        if name.startswith(BUILTIN):
            # A tensor within a block comes as two: the second begins where the data of the first does.
            if name == BUILTIN + "ensure_zero_offset":
                self._fresh.discard(arguments[0].__chandle__())
            if name in _ALLOCATING:
                self._fresh.add(result.__chandle__())
            return
        tensors = [a for a in arguments if hasattr(a, "shape") and hasattr(a, "dtype")]
        written = [tensor for tensor in tensors if tensor.__chandle__() in self._fresh] or tensors[-1:]
        self._fresh.difference_update(tensor.__chandle__() for tensor in written)
        index, self._index = self._index, self._index + 1
        if index < self._start:
            return
        if self._left <= 0:
            self.complete = False
            return
        data = [_data(tensor) for tensor in written]
        self.calls.append({"index": index, "name": name, "tensors": len(data)})
        self.tensors.extend(data)
        self._left -= sum(len(tensor.data) for tensor in data)


def _data(tensor: Any) -> TensorData:
    shape, dtype = tuple(int(d) for d in tensor.shape), str(tensor.dtype)
    return TensorData(shape, dtype, ffi.to_bytes(tensor, tensor_bytes(shape, dtype)))


def create() -> TvmEngine:
    """Loads TVM's runtime and creates the engine."""
    ffi.load_runtime()
    return TvmEngine()
