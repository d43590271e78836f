"""A text computed exactly and with roundings, side by side in one batch, so that each weight is read once.

Behind a prompt, a step reads keys and values that a prefill has made of rounded numbers, and rounds less
itself. Of each way of rounding there are two rows of the batch: in one all tokens are computed as a prefill
does, in the other each token as the first step behind a prompt that ends before it. So every token of a text
is a place where it shows what rounding does to logits, in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from host.importers.decoders.reference.attention import (
    Kept,
    attention,
    in_bfloat16,
    replaced_attention,
    step_attention,
)
from host.importers.decoders.reference.model import bias_of, weight_blocks
from host.importers.decoders.reference.rounding import (
    BYTES,
    STEP,
    TILES,
    as_halves,
    as_they_are,
    is_in_tiles,
    rounded,
)
from host.importers.decoders.reference.stored import StoredPart

if TYPE_CHECKING:
    import torch

# Logits of a batch at most: a large vocabulary has fewer places.
_MOST_LOGITS = 1 << 25


@dataclass(frozen=True, eq=False)
class Way:
    """A way of rounding.

    Attributes:
        products: weights whose products a prefill rounds further than a step, by their names in the files.
        attention: whether its attention rounds what it multiplies to bfloat16.
        kept: rounds keys and values as the cache keeps them, (..., D) float32.
    """

    products: frozenset[str]
    attention: bool
    kept: Kept


@dataclass(frozen=True)
class Rows:
    """The rows of a batch: those of all texts exactly, then of each way as prefill, then of each as steps."""

    texts: int
    ways: int

    def exact(self) -> slice:
        """Rows without rounding."""
        return slice(0, self.texts)

    def prefill(self, way: int) -> slice:
        """Rows of a way, as a prefill computes them."""
        return slice((1 + way) * self.texts, (2 + way) * self.texts)

    def steps(self, way: int) -> slice:
        """Rows of a way, each token as a step behind the tokens before it."""
        return slice((1 + self.ways + way) * self.texts, (2 + self.ways + way) * self.texts)

    def with_logits(self) -> list[int]:
        """Rows whose logits are wanted: the exact ones, then all steps."""
        total = (1 + 2 * self.ways) * self.texts
        return [*range(self.texts), *range((1 + self.ways) * self.texts, total)]


def moved_by_ways(
    model: Any,
    texts: np.ndarray,
    ways: Sequence[Way],
    products: Sequence[tuple[Any, StoredPart]],
    *,
    tiles: bool,
    cached: Kept,
) -> list[np.ndarray]:
    """How far logits behind the tokens of texts move, as part of the largest behind the same token.

    Args:
        model: of transformers.
        texts: (n, T) int32.
        ways: that are tried.
        products: modules that multiply by quantised weights, each with its weight.
        tiles: whether registers of matrices multiply where a prefill rounds.
        cached: what the cache of the exact rows does to keys and values.

    Returns:
        (n, places) float64 of each way, of places that are evenly spread over each text; not finite where
        a logit is not.
    """
    import torch

    rows = Rows(len(texts), len(ways))
    batch = torch.from_numpy(np.tile(texts, (1 + 2 * len(ways), 1)).astype(np.int64))
    head = model.get_output_embeddings()
    wanted = rows.with_logits()
    vocabulary = int(model.config.get_text_config().vocab_size)
    count = max(min(texts.shape[1], _MOST_LOGITS // (vocabulary * len(wanted))), 1)
    # The last one first: alone, the first one has no prompt before it that could be rounded.
    spread = np.linspace(texts.shape[1] - 1, 0, count).round()
    places = torch.from_numpy(np.unique(spread.astype(np.int64)))
    selected = head.register_forward_pre_hook(lambda _, given: (given[0][wanted], *given[1:]))
    try:
        with (
            torch.inference_mode(),
            _products(products, rows, ways, head, tiles=tiles),
            replaced_attention(model, partial(_attend, rows, ways, cached)),
        ):
            logits = model(input_ids=batch, use_cache=False, logits_to_keep=places).logits.float()
    finally:
        selected.remove()
    exact = logits[: len(texts)]
    largest = exact.abs().amax(-1)
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    found = []
    for way in range(len(ways)):
        off = logits[(1 + way) * len(texts) : (2 + way) * len(texts)] - exact
        found.append((off.abs().amax(-1) / largest).double().numpy())
    return found


@contextmanager
def _products(
    products: Sequence[tuple[Any, StoredPart]], rows: Rows, ways: Sequence[Way], head: Any, *, tiles: bool
) -> Iterator[None]:
    """Have modules multiply each row as its way does inside of the context."""
    before = [(module, module.__dict__.get("forward")) for module, _ in products]
    for module, part in products:
        how = _of_head(rows) if module is head else _of_rows(rows, ways, part, tiles=tiles)
        module.forward = _forward(module, part, how)
    try:
        yield
    finally:
        for module, forward in before:
            del module.forward
            if forward is not None:
                module.forward = forward


def _of_head(rows: Rows) -> list[tuple[slice, str]]:
    """How the rows are multiplied whose logits are wanted."""
    return [(rows.exact(), ""), (slice(rows.texts, (1 + rows.ways) * rows.texts), STEP)]


def _of_rows(rows: Rows, ways: Sequence[Way], part: StoredPart, *, tiles: bool) -> list[tuple[slice, str]]:
    """How all rows are multiplied by a weight; neighbours that are multiplied alike are one piece."""
    further = TILES if tiles and is_in_tiles(part.form) else BYTES
    pieces = [(rows.exact(), "")]
    for number, way in enumerate(ways):
        pieces.append((rows.prefill(number), further if part.matrix.name in way.products else STEP))
    pieces.append((slice(rows.steps(0).start, rows.steps(rows.ways - 1).stop), STEP))
    joined = pieces[:1]
    for piece, how in pieces[1:]:
        if joined[-1][1] == how:
            joined[-1] = (slice(joined[-1][0].start, piece.stop), how)
        else:
            joined.append((piece, how))
    return joined


def _forward(module: Any, part: StoredPart, pieces: Sequence[tuple[slice, str]]) -> Callable[..., Any]:
    def forward(given: torch.Tensor) -> torch.Tensor:
        import torch

        inputs = [(piece, how, rounded(given[piece], part, how)) for piece, how in pieces]
        made = given.new_empty(*given.shape[:-1], part.matrix.rows)
        for outputs, values in weight_blocks(module):
            narrow = in_bfloat16(values) if any(how == TILES for _, how in pieces) else values
            for piece, how, one in inputs:
                weight = narrow if how == TILES else values
                made[piece, ..., outputs] = torch.nn.functional.linear(one, weight)
        bias = bias_of(module)
        return made if bias is None else made.add_(bias)

    return forward


def _attend(
    rows: Rows,
    ways: Sequence[Way],
    cached: Kept,
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer of all rows, called as transformers calls it."""
    import torch

    mask = None if attention_mask is None else attention_mask[:1]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    made = torch.empty_like(query)
    exact = rows.exact()
    made[exact] = attention(query[exact], cached(key[exact]), cached(value[exact]), mask, scale, softcap)
    for number, way in enumerate(ways):
        prefill, steps = rows.prefill(number), rows.steps(number)
        keys, values = way.kept(key[prefill]), way.kept(value[prefill])
        made[prefill] = attention(query[prefill], keys, values, mask, scale, softcap, bfloat16=way.attention)
        own = way.kept(key[steps]), way.kept(value[steps])
        made[steps] = step_attention(query[steps], (keys, values), own, mask, scale, softcap)
    return made.transpose(1, 2).contiguous(), None


def moved_by_halves(model: Any, texts: np.ndarray, between: bool, sums: bool) -> np.ndarray:
    """How far logits move where tensors lie in half precision, see `moved_by_ways`.

    What products are given and give is rounded, and the rows between layers twice, as each layer adds to
    them twice. Sums in half precision are off by 2^-11 of their own size, as root mean square
    (`host.lowering.passes.halves.half_sums`).

    Args:
        model: of transformers, whose matrices are rounded already.
        texts: (n, T) int32.
        between: whether what lies between kernels is rounded, and not keys and values alone.
        sums: whether products add up in half precision.

    Returns:
        (n, T) float64.
    """
    import torch

    way = [Way(frozenset(), False, as_halves)]
    hooks = []
    noise = torch.Generator().manual_seed(0)

    def behind(made: Any) -> Any:
        made[len(texts) :] = as_halves(made[len(texts) :])
        return made

    def given(_: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return (behind(values[0].clone()), *values[1:])

    def summed(_: Any, values: Any, made: torch.Tensor) -> torch.Tensor:
        part = made[len(texts) :]
        size = part.square().mean(-1, keepdim=True).sqrt() * 2**-11
        part += size * torch.randn(part.shape, generator=noise)
        return made

    def layer(_: Any, values: Any, made: Any) -> Any:
        value = made[0] if isinstance(made, tuple) else made
        # A second grid, as a second sum is rounded on another one.
        value = behind(behind(value.clone()) * 1.37) / 1.37
        return (value, *made[1:]) if isinstance(made, tuple) else value

    head = model.get_output_embeddings()
    if between:
        for module in model.modules():
            multiplies = hasattr(module, "weight") and module.weight.dim() == 2
            if multiplies and not isinstance(module, torch.nn.Embedding):
                hooks.append(module.register_forward_pre_hook(given))
                hooks += [module.register_forward_hook(summed)] if sums else []
                if module is not head:
                    hooks.append(module.register_forward_hook(lambda _, values, made: behind(made)))
        hooks += [one.register_forward_hook(layer) for one in _layers(model)]
    try:
        (found,) = moved_by_ways(model, texts, way, [], tiles=False, cached=as_they_are)
    finally:
        for one in hooks:
            one.remove()
    return found


def _layers(model: Any) -> Any:
    """The layers of a decoder: the longest list of modules."""
    import torch

    lists = [one for one in model.modules() if isinstance(one, torch.nn.ModuleList)]
    return max(lists, key=len)
