"""A 1x1 convolution, a depthwise one and perhaps another 1x1 convolution as one operation in bands."""

from __future__ import annotations

from host.lowering.bands.find import CHAIN, chain_in_bands
from host.lowering.bands.function import chain_function
from host.lowering.spec import GraphPass, OpSpec, Phase

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        CHAIN,
        function=chain_function,
        passes=(GraphPass(Phase.PACKED, chain_in_bands, one_length=True, single=True, decides=True),),
    ),
)
