"""Small models on the virtual machine, built as deployed ones are, and the instructions that they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from host.build import build_model
from host.build.memory.lent import LENT, TENSORS
from host.model import LoweredModel, Signature


class Program:
    """A model of one function.

    Args:
        shapes: of its inputs, of fp32.
        write: its operations.
        target: what it is compiled for.
        folder: for the library.
        bounds: greatest values of symbolic sizes.
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[Any]],
        write: Callable[..., Any],
        target: tvm.target.Target,
        folder: Path,
        bounds: dict[str, int] | None = None,
    ) -> None:
        inputs = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
        attributes: dict[str, Any] = {"num_input": len(inputs)}
        if bounds:
            attributes["tir_var_upper_bound"] = bounds
        builder = relax.BlockBuilder()
        with builder.function("main", inputs, attrs=attributes):
            with builder.dataflow():
                made = builder.emit_output(write(builder, *inputs))
            builder.emit_func_output(made)
        with target:
            module = relax.transform.LegalizeOps()(builder.get())
        lowered = LoweredModel("program", Signature((), ()), module, (), (), target)
        build_model(lowered, {}, folder / "program.so")
        self._module = tvm.runtime.load_module(str(folder / "program.so"))
        self.machine = self._made()

    def _made(self) -> Any:
        return relax.VirtualMachine(self._module, tvm.cpu())

    @property
    def lends(self) -> bool:
        """Whether it has a function that takes the tensors between kernels."""
        return bool(self.machine.module.implements_function(TENSORS % "main"))

    def tensors(self) -> list[Any]:
        """The tensors between its kernels."""
        return list(self.machine[TENSORS % "main"]())

    def run(self, *inputs: np.ndarray, tensors: Sequence[Any] | None = None) -> list[Any]:
        """Its results; on tensors that it is lent, where they are given."""
        name = "main" if tensors is None else LENT % "main"
        made = self.machine[name](*map(tvm.runtime.tensor, inputs), *(tensors or ()))
        return [made] if hasattr(made, "numpy") else list(made)

    def calls(self, *inputs: np.ndarray, tensors: Sequence[Any] | None = None) -> Counter[str]:
        """How often the machine calls each function in a run."""
        found: Counter[str] = Counter()

        def note(_function: Any, name: str, before: bool, *_: Any) -> None:
            found[name] += before

        machine = self._made()
        machine.set_instrument(note)
        machine["main" if tensors is None else LENT % "main"](
            *map(tvm.runtime.tensor, inputs), *(tensors or ())
        )
        return found


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers between 0.1 and 1."""
    return np.random.default_rng(seed).uniform(0.1, 1.0, shape).astype("float32")
