"""Rounding of what compiled products multiply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from host.importers.decoders.quantise import Form
from host.importers.decoders.reference.attention import in_bfloat16
from host.importers.decoders.reference.stored import StoredPart

if TYPE_CHECKING:
    import torch

# What is done to activations: 16 bits for each group, as steps do; bytes; bfloat16, to which weights are
# rounded too.
STEP, BYTES, TILES = "step", "bytes", "tiles"
# Elements of a row of a tile: groups of no whole rows are products of bytes there too.
_DEPTH = 32
# The largest numbers that activations become (`host.lowering.quantised.layout`).
_LARGEST = {STEP: 127 * 256 + 127, BYTES: 127}


def rounded(given: torch.Tensor, part: StoredPart, how: str) -> torch.Tensor:
    """Activations (..., K) as a product with a weight has them: of `STEP`, `BYTES`, `TILES`, or "" for exact.

    Groups of bytes and of 16 bits have a scale each, by their largest absolute value, as
    `host.lowering.quantised.product` does it.
    """
    if not how:
        return given
    return in_bfloat16(given) if how == TILES else _in_groups(given, part, _LARGEST[how])


def is_in_tiles(form: Form) -> bool:
    """Whether rounding to bfloat16 is all that registers of matrices do to weights of this form.

    Weights with zero points, minima or multipliers are taken to round as bytes do: there registers of
    matrices also have what single precision rounds off before, which is more than this shows.
    """
    return form.group % _DEPTH == 0 and not form.asymmetry and not form.multiplied


def _in_groups(given: torch.Tensor, part: StoredPart, largest: int) -> torch.Tensor:
    import torch

    order = part.order
    split = (given if order is None else given[..., order]).unflatten(-1, (-1, part.form.group))
    scale = split.abs().amax(-1, keepdim=True) / largest
    made = (torch.round(split / scale.clamp(min=1e-30)) * scale).flatten(-2)
    return made if order is None else made[..., np.argsort(order)]


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    """Keys or values (..., D) of bytes, with a scale in half precision for each position of a head.

    As `host.lowering.decoding.function` keeps them.
    """
    import torch

    scale = (values.abs().amax(-1, keepdim=True) / 127).clamp(max=65504).half().float()
    inverse = torch.where(scale > 0, 1 / scale, 0.0)
    return (values * inverse).round().clamp(-127, 127) * scale


def as_halves(values: torch.Tensor) -> torch.Tensor:
    """Keys or values as a cache in half precision holds them."""
    return values.half().float()


def as_they_are(values: torch.Tensor) -> torch.Tensor:
    """Keys or values as a cache in float32 holds them."""
    return values
