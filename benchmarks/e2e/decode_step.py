"""Decoders of the zoo as decode steps: one token, with the keys and values of those before it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from research.models.export import export_onnx_model
from research.models.zoo import make

PLACES = 256
"""Tokens that the caches have places for."""


class _Written(DynamicLayer):  # type: ignore[misc]
    """The cache of a layer with a place for every token, into which the row of the new one is written.

    Args:
        keys, values: (1, H, `PLACES`, D).
        position: (1,) of the new token.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True
        self._position = position

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *given: object, **named: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the rows of the new token, each (1, H, 1, D)."""
        self.keys = self.keys.index_copy(2, self._position, key_states)
        self.values = self.values.index_copy(2, self._position, value_states)
        return self.keys, self.values


class DecodeStep(nn.Module):  # type: ignore[misc]
    """A language model of transformers as a function of a token, its position and all caches.

    Args:
        model: computes logits of tokens.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, token: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Logits (1, 1, V) behind a token, and the caches with it.

        Args:
            token: (1, 1) int64.
            position: (1,) int64, below `PLACES`; all places before it are written.
            caches: keys and values of each layer in turn, each (1, H, `PLACES`, D).
        """
        layers = [
            _Written(keys, values, position) for keys, values in zip(caches[::2], caches[1::2], strict=True)
        ]
        seen = torch.arange(PLACES) <= position
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min).reshape(1, 1, 1, PLACES)
        result = self.model(
            input_ids=token,
            position_ids=position[None],
            attention_mask=mask,
            past_key_values=Cache(layers=layers),
            use_cache=True,
        )
        return (result.logits, *(part for layer in layers for part in (layer.keys, layer.values)))

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Example inputs behind half of the places."""
        config = self.model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        caches = [torch.randn(1, heads, PLACES, size) for _ in range(2 * config.num_hidden_layers)]
        return torch.randint(0, config.vocab_size, (1, 1)), torch.tensor([PLACES // 2]), *caches


def write_step(model: PreTrainedModel, path: Path) -> None:
    """Write the decode step of a language model as one ONNX file."""
    step = DecodeStep(model).eval().requires_grad_(False)
    names = [
        f"{kind}_{layer}" for layer in range(model.config.num_hidden_layers) for kind in ("keys", "values")
    ]
    inputs = ["token", "position", *(f"{name}_before" for name in names)]
    export_onnx_model(step, step.inputs(), inputs, ["logits", *names], path)


def decode_step_file(name: str, path: Path) -> Path:
    """The decode step of a decoder of the zoo as an ONNX file, made unless it is there.

    Args:
        name: of the model.
        path: of the file.

    Raises:
        SystemExit: the model is no decoder.
    """
    if not path.is_file():
        module, _ = make(name)
        model = getattr(module, "model", None)
        if not isinstance(model, GenerationMixin) or not isinstance(model, PreTrainedModel):
            raise SystemExit(f"{name} is no decoder: it has no step")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"partial-{path.name}")
        write_step(model, partial)
        partial.replace(path)
    return path
