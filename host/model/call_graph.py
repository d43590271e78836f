"""Which kernels a run of a model calls, and whose results each of them reads."""

from __future__ import annotations

from dataclasses import dataclass

from host.model.layer import Layer


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel.

    Attributes:
        kernel: name of its task.
        layers: of the model's file that this call computes, in their order; empty where they are not known.
        reads: whose results it reads, each once: numbers of calls before it, and -1 - n for input n of the
            model. Views are seen through; weights are left out.
    """

    kernel: str
    layers: tuple[Layer, ...] = ()
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class CallGraph:
    """One run of a model.

    Attributes:
        calls: in the order in which they are made.
        outputs: what the model's outputs are made of, numbered like `KernelCall.reads`, each once.
    """

    calls: tuple[KernelCall, ...] = ()
    outputs: tuple[int, ...] = ()
