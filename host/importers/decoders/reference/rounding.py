"""Products of transformers that round what they multiply, as those of a compiled prefill may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from host.importers.decoders.quantise import Form
from host.importers.decoders.reference.attention import in_bfloat16
from host.importers.decoders.reference.stored import StoredPart

if TYPE_CHECKING:
    import torch

# Elements of a row of a tile: groups of no whole rows are products of bytes there too.
_DEPTH = 32
# Elements of a weight that are in memory at a time.
_BLOCK = 1 << 22


@contextmanager
def rounded_products(products: Sequence[tuple[Any, StoredPart]], *, tiles: bool) -> Iterator[None]:
    """Have modules round what they multiply inside of the context.

    What they are given is rounded to bytes, each group by its largest absolute value, as
    `host.lowering.quantised.product` does it. With `tiles`, it is rounded to bfloat16, and so are the values
    of the weights, as `host.tensor_ir.tiles.quantised` does it where groups are whole rows of a tile. Weights
    with zero points, minima or multipliers are taken to round as bytes do: there registers of matrices also
    have what single precision rounds off before, which is more than this shows.

    Args:
        products: modules that multiply, each with its weight.
        tiles: whether registers of matrices multiply.
    """
    hooks = []
    for module, part in products:
        if tiles and _is_shown(part.form):
            hooks.append(module.register_forward_pre_hook(_given_in_bfloat16))
            hooks.append(module.register_forward_hook(_by_weights_in_bfloat16(part)))
        else:
            hooks.append(module.register_forward_pre_hook(_given_in_bytes(part.form.group, part.order)))
    try:
        yield
    finally:
        for one in hooks:
            one.remove()


def _is_shown(form: Form) -> bool:
    """Whether rounding to bfloat16 is all that registers of matrices do to weights of this form."""
    return form.group % _DEPTH == 0 and not form.asymmetry and not form.multiplied


def _given_in_bytes(group: int, order: np.ndarray | None) -> Any:
    def rounded(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        import torch

        value, *others = given
        split = (value if order is None else value[..., order]).unflatten(-1, (-1, group))
        scale = split.abs().amax(-1, keepdim=True) / 127
        whole = torch.round(split / scale.clamp(min=1e-30))
        made = (whole * scale).flatten(-2)
        return (made if order is None else made[..., np.argsort(order)], *others)

    return rounded


def _given_in_bfloat16(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    value, *others = given
    return (in_bfloat16(value), *others)


def _by_weights_in_bfloat16(part: StoredPart) -> Any:
    """Adds what rounding the weights changes: whoever multiplied has the others, or had them."""

    def changed(_: Any, given: tuple[Any, ...], made: torch.Tensor) -> torch.Tensor:
        import torch

        rows, step = part.matrix.rows, max(_BLOCK // part.matrix.columns, 1)
        for begin in range(0, rows, step):
            end = min(begin + step, rows)
            exact = torch.from_numpy(np.ascontiguousarray(part.values(begin, end)))
            made[..., begin:end] += given[0] @ (in_bfloat16(exact) - exact).T
        return made

    return changed
