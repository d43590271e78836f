"""What a model of the zoo is, and the wrappers that give models of transformers plain tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo.

    Attributes:
        build: makes the module, with weights from the current torch seed.
        inputs: makes example inputs, in the order of `forward`.
        input_names: names of the inputs in ONNX.
        output_names: names of the outputs in ONNX.
        formats: formats that it is exported to by default.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    formats: tuple[str, ...] = ("onnx", "pt2")


class TensorOutputs(nn.Module):
    """A transformers model that returns plain tensors instead of a dictionary.

    Args:
        model: the wrapped model.
        output_names: attributes of the result to return, in order.
    """

    def __init__(self, model: nn.Module, output_names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.selected = output_names

    def run(self, **inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The selected outputs."""
        result = self.model(**inputs, return_dict=True)
        outputs = tuple(getattr(result, name) for name in self.selected)
        return outputs[0] if len(outputs) == 1 else outputs


class ImageModel(TensorOutputs):
    """Takes an image."""

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Image (N, 3, H, W) to the selected outputs."""
        return self.run(pixel_values=pixel_values)


class TokenModel(TensorOutputs):
    """Takes token numbers."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Tokens (N, T) int64 to the selected outputs."""
        return self.run(input_ids=input_ids)


class SentencePairModel(TensorOutputs):
    """Takes what BERT takes."""

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Tokens, mask and sentence numbers, each (N, T) int64, to the selected outputs."""
        return self.run(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)


def image_input(size: int = 224) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Makes a random image of shape (1, 3, size, size)."""
    return lambda: (torch.randn(1, 3, size, size),)


def image_model(
    build: Callable[[], nn.Module],
    size: int = 224,
    output: str = "logits",
    formats: tuple[str, ...] = ("onnx", "pt2"),
) -> ZooModel:
    """A model from one image to one tensor."""
    return ZooModel(build, image_input(size), ("pixel_values",), (output,), formats)


def vision(
    class_name: str, config_name: str, output: str = "logits", **options: object
) -> Callable[[], nn.Module]:
    """Builds a model of transformers that takes an image."""

    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, config_name)(**options)
        return ImageModel(getattr(transformers, class_name)(config), (output,))

    return build


def text(
    class_name: str, config_name: str, output: str = "last_hidden_state", **options: object
) -> Callable[[], nn.Module]:
    """Builds a model of transformers that takes token numbers."""

    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, config_name)(**options)
        return TokenModel(getattr(transformers, class_name)(config), (output,))

    return build


def token_model(build: Callable[[], nn.Module], words: int, length: int, output: str) -> ZooModel:
    """A model from (1, length) token numbers below `words` to one tensor."""
    return ZooModel(
        build, lambda: (torch.randint(0, words, (1, length)),), ("input_ids",), (output,), ("onnx",)
    )
