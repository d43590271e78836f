"""Attention over keys and values that are kept from call to call."""

from __future__ import annotations

from host.lowering.decoding.function import cached_attention_function
from host.lowering.decoding.reading import (
    OPERATION,
    READ,
    place_cached_attention,
    read_cached_attention,
)
from host.lowering.spec import GraphPass, OpSpec, Phase

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        READ,
        read={f"edgetlm.{OPERATION}": read_cached_attention},
        passes=(GraphPass(Phase.SIMPLIFIED, place_cached_attention),),
    ),
    OpSpec(OPERATION, function=cached_attention_function),
)
