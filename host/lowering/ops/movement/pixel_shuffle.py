"""Channels moved into the image, r x r of them to each position: how super-resolution networks end.

Read as a reshape, a transpose and a reshape.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Value
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value:
    """[*N, C r r, H, W] as [*N, C, H r, W r]."""
    data, factor = call.value(0), int(call.attrs.upscale_factor)
    *batch, channels, height, width = data.shape
    first = len(batch)
    split = builder.reshape(data, (*batch, channels // factor**2, factor, factor, height, width))
    order = (*range(first), first, first + 3, first + 1, first + 4, first + 2)
    return builder.reshape(builder.transpose(split, order), call.shape)


SPECS: tuple[OpSpec, ...] = (OpSpec("pixel_shuffle", read={"nn.pixel_shuffle": _read}),)
