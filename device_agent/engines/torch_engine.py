"""PyTorch: exported programs (.pt2), run eagerly as their module."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from device_agent.engines import fails
from device_agent.wire import TensorData


class TorchEngine:
    """One exported program."""

    def __init__(self, package: Any) -> None:
        self._torch = package
        self._module: Any = None
        self._inputs: List[Any] = []
        self._result: Any = None

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine; the signature of a program holds no names, so none is returned."""
        self._torch.set_num_threads(threads)
        try:
            self._module = self._torch.export.load(path).module()
        except Exception as error:  # zip, pickle and export errors share no base
            raise fails("torch cannot load", path, error) from error
        return {}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        from device_agent.engines.arrays import to_array

        self._inputs = [self._torch.from_numpy(to_array(tensor)) for tensor in inputs]

    def invoke(self) -> None:
        """See Engine."""
        try:
            with self._torch.inference_mode():
                self._result = self._module(*self._inputs)
        except Exception as error:  # a model may raise anything
            raise fails("torch cannot run", "the model", error) from error

    def outputs(self) -> List[TensorData]:
        """See Engine; nested outputs are flattened in the order of torch's pytree."""
        from device_agent.engines.arrays import from_array

        leaves = self._torch.utils._pytree.tree_leaves(self._result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor)]
        return [from_array(tensor.detach().cpu().numpy()) for tensor in tensors]


def create() -> TorchEngine:
    """A new engine; ImportError where torch is missing."""
    import torch
    import torch.export

    return TorchEngine(torch)
