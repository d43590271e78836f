"""Libraries of one model that differ in the programs of some kernels, to be measured inside of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from host.build.cache import KernelCache
from host.build.kernel import KernelObject
from host.build.linker import link_kernels
from host.build.model import compile_all, lower_to_executable, packed_executable
from host.build.target import architecture_of
from host.model import LoweredModel


class VariantLinker:
    """A model for a CPU that is lowered and compiled once, and linked with other programs of its kernels.

    Args:
        lowered: the model.
        kernels: scheduled function by name in `lowered.module`, for every library that has no other one; the
            rest get the default schedule.
        folder: for the object that all libraries share.
        cache: where kernels are looked up and kept.

    Attributes:
        kernels: names of all kernels that one run of the model calls: those of `main`.
        target: what they are compiled for.

    Raises:
        BuildError: the model does not compile.
    """

    def __init__(
        self,
        lowered: LoweredModel,
        kernels: Mapping[str, tvm.tirx.PrimFunc],
        folder: Path,
        cache: KernelCache | None = None,
    ) -> None:
        self.target = lowered.target
        executable, functions, _, _ = lower_to_executable(lowered.module, self.target)
        self._objects, _ = compile_all(
            functions, functions.__getitem__, kernels, self.target, None, cache, None
        )
        self.kernels = frozenset(functions) & _called(lowered.module["main"])
        self._packed = packed_executable(executable, folder, self.target)

    def link(self, others: Mapping[str, KernelObject], output: Path) -> Path:
        """The model with other programs of some kernels.

        Args:
            others: by name of the kernel.
            output: path of the library.

        Raises:
            BuildError: linking fails.
            DeviceFull: no space left.
        """
        return link_kernels({**self._objects, **others}, output, architecture_of(self.target), [self._packed])

    def link_alone(self, name: str, kernel: KernelObject, output: Path) -> Path:
        """A library with one kernel, callable by its name.

        Args:
            name: of the kernel.
            kernel: its object.
            output: path of the library.

        Raises:
            BuildError: linking fails.
            DeviceFull: no space left.
        """
        return link_kernels({name: kernel}, output, architecture_of(self.target))


def _called(function: relax.Function) -> frozenset[str]:
    """Names of the functions that a relax function names."""
    found: set[str] = set()

    def visit(expression: Any) -> None:
        if isinstance(expression, tvm.ir.GlobalVar):
            found.add(expression.name_hint)

    relax.analysis.post_order_visit(function.body, visit)
    return frozenset(found)
