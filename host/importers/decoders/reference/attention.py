"""Attention of transformers that rounds what it multiplies to bfloat16, as a compiled prefill may.

`host.lowering.decoding.blocked` rounds queries, keys, values and the powers of scores, and adds up in single
precision. The sum that the values are divided by has powers that are not rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Under which transformers finds it, in its registries of this process.
_NAME = "edgetlm_bfloat16"


@contextmanager
def rounded_attention(model: Any) -> Iterator[None]:
    """Have all attention of a model round its operands inside of the context.

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


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer, called as transformers calls it.

    Powers are of differences from the highest score of a row. The compiled program knows the highest of the
    positions so far: where a later block of positions has a higher one, it rounds other numbers, by as much.

    Args:
        module: whose attention it is.
        query: (1, H, T, D) float32.
        key: (1, Hk, C, D); Hk divides H.
        value: as `key`.
        attention_mask: (1, 1, T, C) that is added to the scores: 0, or the lowest number; None for all zeros.
        scaling: of the scores; None for 1 / sqrt(D).
        softcap: scaled scores become softcap * tanh(score / softcap); None for no cap.

    Returns:
        (1, T, H, D), and no weights.
    """
    group = query.shape[1] // key.shape[1]
    keys, values = (in_bfloat16(one).repeat_interleave(group, dim=1) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = in_bfloat16(query) @ keys.transpose(2, 3) * scale
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    if attention_mask is not None:
        scores = scores + attention_mask
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    made = in_bfloat16(powers) @ values / powers.sum(-1, keepdim=True)
    return made.transpose(1, 2).contiguous(), None


def in_bfloat16(values: torch.Tensor) -> torch.Tensor:
    """Numbers of float32 rounded to the nearest of bfloat16."""
    import torch

    return values.to(torch.bfloat16).to(values.dtype)
