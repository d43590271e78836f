"""GPT-2 in PyTorch alone: the network of the language model, with a cache of keys and values for decoding.

Architecture and names of the weights are those of Radford et al. 2019, as transformers stores them, with the
tanh form of GELU and the rows of the tokens as the output layer. The size of the whole is that of a page, its
import takes no second beside PyTorch's, and a machine that trains needs PyTorch alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as fn

# Standard deviation of random weights; what a block adds has it divided by the root of their number.
_DEVIATION = 0.02


class Cache:
    """Keys and values of the tokens so far, (rows, heads, tokens, width of a head) for each layer."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def length(self) -> int:
        """Number of the tokens so far."""
        return self.layers[0][0].shape[2] if self.layers else 0

    def extended(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the keys and values of further tokens to a layer; all of them."""
        if layer in self.layers:
            before = self.layers[layer]
            keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
        self.layers[layer] = keys, values
        return keys, values

    def copy(self) -> Cache:
        """Another one of the same tokens, to go on in another way."""
        found = Cache()
        found.layers = dict(self.layers)
        return found

    def select(self, rows: Sequence[int]) -> None:
        """Keep the rows of these numbers, in their order; a row may be kept several times."""
        if list(rows) == list(range(len(self.layers[0][0]))):
            return
        places = torch.tensor(rows)
        for layer, (keys, values) in self.layers.items():
            self.layers[layer] = keys.index_select(0, places), values.index_select(0, places)


class _Projection(nn.Module):  # type: ignore[misc]  # PyTorch is not typed
    """x W + b, with W as (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int, deviation: float = _DEVIATION) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * deviation)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(..., inputs) to (..., outputs)."""
        return fn.linear(inputs, self.weight.T, self.bias)


class _Attention(nn.Module):  # type: ignore[misc]  # PyTorch is not typed
    def __init__(self, width: int, heads: int, deviation: float) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = _Projection(width, 3 * width)
        self.c_proj = _Projection(width, width, deviation)

    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor | None, cache: Cache | None, layer: int
    ) -> torch.Tensor:
        rows, length, width = inputs.shape
        parts = self.c_attn(inputs).view(rows, length, 3, self.heads, width // self.heads)
        query, keys, values = parts.permute(2, 0, 3, 1, 4).unbind()
        if cache is not None:
            keys, values = cache.extended(layer, keys, values)
        # A single token sees all tokens before it.
        causal = mask is None and length > 1
        seen = fn.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)
        return self.c_proj(seen.transpose(1, 2).reshape(rows, length, width))


class _FeedForward(nn.Module):  # type: ignore[misc]  # PyTorch is not typed
    def __init__(self, width: int, deviation: float) -> None:
        super().__init__()
        self.c_fc = _Projection(width, 4 * width)
        self.c_proj = _Projection(4 * width, width, deviation)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.c_proj(fn.gelu(self.c_fc(inputs), approximate="tanh"))


class _Block(nn.Module):  # type: ignore[misc]  # PyTorch is not typed
    def __init__(self, width: int, heads: int, deviation: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = _Attention(width, heads, deviation), _FeedForward(width, deviation)

    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor | None, cache: Cache | None, layer: int
    ) -> torch.Tensor:
        inputs = inputs + self.attn(self.ln_1(inputs), mask, cache, layer)
        return inputs + self.mlp(self.ln_2(inputs))


class _Transformer(nn.Module):  # type: ignore[misc]  # PyTorch is not typed
    def __init__(self, tokens: int, positions: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(positions, width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=_DEVIATION)
        deviation = _DEVIATION / math.sqrt(2 * layers)
        self.h = nn.ModuleList(_Block(width, heads, deviation) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Cache | None = None,
    ) -> torch.Tensor:
        state = self.wte(tokens) + self.wpe(positions)
        for layer, block in enumerate(self.h):
            state = block(state, mask, cache, layer)
        return self.ln_f(state)


class LanguageModel(nn.Module):  # type: ignore[misc]  # PyTorch is not typed
    """A decoder-only transformer.

    Args:
        tokens: of the vocabulary.
        positions: longest sentence.
        layers, heads, width: of the transformer; the number of heads divides the width.
    """

    def __init__(self, tokens: int, positions: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.transformer = _Transformer(tokens, positions, layers, heads, width)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.transformer.wte.weight.device

    def hidden(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What the output layer reads.

        Args:
            tokens: (rows, length) their numbers.
            positions: (rows, length) their places in their sentences.
            mask: (rows, 1, length, length), true where a token is seen; None for all before each token.

        Returns:
            (rows, length, width).
        """
        found: torch.Tensor = self.transformer(tokens, positions, mask)
        return found

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(..., width) to (..., tokens)."""
        return fn.linear(hidden, self.transformer.wte.weight)

    def forward(self, tokens: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        """Logits of the token after each of these, (rows, length, tokens of the vocabulary).

        Args:
            tokens: (rows, length); one token a row where the cache is not empty.
            cache: of the tokens before; it is extended.
        """
        before = 0 if cache is None else cache.length
        positions = torch.arange(before, before + tokens.shape[1], device=tokens.device)[None]
        return self.logits(self.transformer(tokens, positions, None, cache))
