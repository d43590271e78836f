"""Attention, which passes make of products and softmax: on CPUs, and on GPUs that multiply matrices."""

from __future__ import annotations

from host.lowering.attention.function import attention_function
from host.lowering.attention.matrices import write_attention
from host.lowering.attention.pattern import (
    MATRIX_OPERATION,
    OPERATION,
    fuse_attention,
    fuse_on_matrices,
)
from host.lowering.spec import GraphPass, OpSpec, Phase

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        OPERATION,
        function=attention_function,
        passes=(GraphPass(Phase.SIMPLIFIED, fuse_attention, one_length=True),),
    ),
    OpSpec(
        MATRIX_OPERATION,
        write=write_attention,
        passes=(GraphPass(Phase.SIMPLIFIED, fuse_on_matrices, one_length=True, half="float16"),),
    ),
)
