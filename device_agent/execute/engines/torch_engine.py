"""PyTorch, for exported programs (.pt2), which are run eagerly as their module."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from device_agent.contract.pt2.archive import check_archive, load_libraries, weights_only
from device_agent.execute.engines import check_count, fails
from device_agent.wire.frames import TensorData


class TorchEngine:
    """An exported program that PyTorch runs; see Engine."""

    def __init__(self, package: Any) -> None:
        self._torch = package
        self._module: Any = None
        self._arguments: List[Any] = []
        self._structure: Any = None
        self._positional: Any = ()
        self._keywords: Dict[str, Any] = {}
        self._result: Any = None

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine. The signature of a program has no names, so the returned signature is empty."""
        self._torch.set_num_threads(threads)
        try:
            load_libraries(check_archive(path))
            with weights_only():
                program = self._torch.export.load(path)
                self._module = program.module()
        except Exception as error:  # zip, pickle and export errors have no common base
            raise fails("torch cannot load", path, error) from error
        kind = self._torch.export.graph_signature.InputKind.USER_INPUT
        self._arguments = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is kind]
        self._structure = program.call_spec.in_spec
        return {}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        from device_agent.execute.engines.arrays import to_array

        # A program takes positional and keyword arguments, nested as they were exported. Numbers among the
        # arguments are part of the program.
        check_count(len(inputs), sum(not hasattr(argument, "value") for argument in self._arguments))
        tensors = iter([self._torch.from_numpy(to_array(tensor)) for tensor in inputs])
        flat = [a.value if hasattr(a, "value") else next(tensors) for a in self._arguments]
        self._positional, self._keywords = self._torch.utils._pytree.tree_unflatten(flat, self._structure)

    def invoke(self) -> None:
        """See Engine."""
        try:
            with self._torch.inference_mode():
                self._result = self._module(*self._positional, **self._keywords)
        except Exception as error:  # a model may raise any exception
            raise fails("torch cannot run", "the model", error) from error

    def outputs(self) -> List[TensorData]:
        """See Engine. Nested outputs are flattened in the order of torch's pytree."""
        from device_agent.execute.engines.arrays import from_array

        leaves = self._torch.utils._pytree.tree_leaves(self._result)
        return [from_array(leaf) for leaf in leaves if leaf is not None]


def create() -> TorchEngine:
    """Creates an engine.

    Raises:
        ImportError: torch is missing.
    """
    import torch
    import torch.export

    return TorchEngine(torch)
