"""The processor that a function of a GPU's bundle runs on: the GPU, or the CPU beside it."""

from __future__ import annotations

import tvm

_ATTRIBUTE = "edgetlm.processor"
_CPU = "cpu"


def for_cpu(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The function, marked to run on the CPU in a bundle for a GPU."""
    return function.with_attr(_ATTRIBUTE, _CPU)


def is_for_cpu(function: tvm.tirx.PrimFunc) -> bool:
    """Whether the function is marked to run on the CPU."""
    attributes = function.attrs
    return attributes is not None and _ATTRIBUTE in attributes and str(attributes[_ATTRIBUTE]) == _CPU
