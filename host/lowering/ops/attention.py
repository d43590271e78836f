"""Attention, which a pass makes of products and softmax."""

from __future__ import annotations

from host.lowering.attention.function import attention_function
from host.lowering.attention.pattern import OPERATION, fuse_attention
from host.lowering.spec import GraphPass, OpSpec, Phase

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        OPERATION,
        function=attention_function,
        passes=(GraphPass(Phase.SIMPLIFIED, fuse_attention, one_length=True),),
    ),
)
