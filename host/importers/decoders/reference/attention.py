"""Attention in place of that of transformers: exact, as a compiled prefill rounds it, and of steps.

`host.lowering.decoding.blocked` may round queries, keys, values and the powers of scores to bfloat16, and
adds up in single precision. The sum that the values are divided by has powers that are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# What a cache does to keys or values (..., D) float32.
Kept = Callable[[Any], Any]

# Under which transformers finds it, in its registries of this process.
_NAME = "edgetlm_side_by_side"


@contextmanager
def replaced_attention(model: Any, attend: Callable[..., Any]) -> Iterator[None]:
    """Have all layers of a model call another attention inside of the context.

    Args:
        model: of transformers.
        attend: called as transformers calls its own.

    Raises:
        ValueError: transformers lets nothing replace the attention of this model.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(_NAME, attend)
    AttentionMaskInterface.register(_NAME, eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(_NAME)
    # Where it cannot be replaced, transformers only logs that.
    if model.config._attn_implementation != _NAME:
        raise ValueError(f"the attention of {type(model).__name__} cannot be replaced")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None = None,
    *,
    bfloat16: bool = False,
) -> torch.Tensor:
    """The attention of one layer over all its positions.

    Powers are of differences from the highest score of a row. The compiled program knows the highest of the
    positions so far: where a later block of positions has a higher one, it rounds other numbers, by as much.

    Args:
        query: (B, H, T, D) float32.
        key: (B, Hk, C, D); Hk divides H.
        value: as `key`.
        mask: (1, 1, T, C) that is added to the scores: 0, or the lowest number; None for all zeros.
        scale: of the scores.
        softcap: scaled scores become softcap * tanh(score / softcap); None for no cap.
        bfloat16: whether what is multiplied is rounded to bfloat16.

    Returns:
        (B, H, T, D).
    """
    group = query.shape[1] // key.shape[1]
    number = in_bfloat16 if bfloat16 else _as_it_is
    keys, values = (number(one).repeat_interleave(group, dim=1) for one in (key, value))
    scores = _masked(number(query) @ keys.transpose(2, 3) * scale, mask, softcap)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return number(powers) @ values / powers.sum(-1, keepdim=True)


def step_attention(
    query: torch.Tensor,
    before: tuple[torch.Tensor, torch.Tensor],
    own: tuple[torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """The attention of the last token of each beginning of a text, of which others have made the keys.

    Args:
        query: (B, H, T, D) float32.
        before: keys and values (B, Hk, T, D) that each token finds of the tokens before it.
        own: keys and values of the tokens themselves.
        mask: as of `attention`, with T columns.
        scale: of the scores.
        softcap: as of `attention`.

    Returns:
        (B, H, T, D).
    """
    group = query.shape[1] // own[0].shape[1]
    (keys, values), (key, value) = (
        [one.repeat_interleave(group, dim=1) for one in pair] for pair in (before, own)
    )
    scores = query @ keys.transpose(2, 3) * scale
    scores.diagonal(dim1=2, dim2=3).copy_((query * key).sum(-1) * scale)
    weights = _masked(scores, mask, softcap).softmax(-1)
    on_own = weights.diagonal(dim1=2, dim2=3)[..., None]
    return weights @ values + on_own * (value - values)


def in_bfloat16(values: torch.Tensor) -> torch.Tensor:
    """Numbers of float32 rounded to the nearest of bfloat16."""
    import torch

    return values.to(torch.bfloat16).to(values.dtype)


def _as_it_is(values: torch.Tensor) -> torch.Tensor:
    return values


def _masked(scores: torch.Tensor, mask: torch.Tensor | None, softcap: float | None) -> torch.Tensor:
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    return scores if mask is None else scores + mask
