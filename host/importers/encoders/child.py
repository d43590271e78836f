"""The worker's side: a folder of transformers becomes an archive of `torch.export` with fixed sizes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Set before transformers is imported: nothing is looked for elsewhere.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

from device_agent.contract.text import printable
from host.errors import ImportFailed, ModelFileError
from host.importers.decoders.config import MAX_LAYERS
from host.importers.pins import DeclaredInput, pin_with_defaults
from host.importers.torch.importer import export_module
from host.language_file import CONFIG, folder_config

# Sizes of what the configuration leaves open, and --shape does not give.
_BATCH, _TOKENS, _SIDE, _CHANNELS, _SAMPLES, _FRAMES = 1, 128, 224, 3, 16000, 128
# Fields of configurations with the values of a frame, where frames come first.
_VALUES_OF_FRAME = ("feature_projection_input_dim", "input_feat_per_channel")
_BATCH_NAME, _TOKENS_NAME = "batch", "sequence"
_TOKENS_DTYPE, _VALUES_DTYPE = "int64", "float32"

Declared = tuple[list[DeclaredInput], dict[str, int]]
Declare = Callable[[Any, Any], Declared | None]


def export(folder: str, target: str, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Write the archive.

    Args:
        folder: of transformers.
        target: the archive, new.
        shapes: shape by input name, or one size by the name of a dimension.

    Returns:
        `inputs`: shape by name; `part`: "encoder" where the model has a decoder, which is left out; else "".

    Raises:
        ModelFileError: the folder is not whole, or its class is none of transformers.
        ImportFailed: the model cannot be captured, or takes inputs of an unknown kind.
        ShapeError: a shape does not fit.
    """
    path = Path(folder)
    model = _loaded(path)
    part = ""
    main = str(model.main_input_name)
    if getattr(model.config, "is_encoder_decoder", False):
        model, part = model.get_encoder(), "encoder"
    found = _INPUTS[main](model.config, model) if main in _INPUTS else None
    if found is None:
        raise ImportFailed(
            f"{path.name}: a model of kind {printable(model.config.model_type, 60)!r} whose main input is "
            f"{printable(main, 60)!r} is not supported: export it to ONNX and give that file",
            main,
        )
    declared, standard = found
    sizes = pin_with_defaults(path.name, declared, standard, shapes)
    tensors = [torch.ones(sizes[one.name], dtype=getattr(torch, one.dtype)) for one in declared]
    plain = _with_plain_outputs(model, [one.name for one in declared])
    export_module(plain, tensors, Path(target), path.name)
    return {"inputs": {name: list(shape) for name, shape in sizes.items()}, "part": part}


def _with_plain_outputs(model: Any, names: Sequence[str]) -> Any:
    """A module whose inputs have these names in the archive, and whose outputs are a tuple of tensors."""

    class PlainOutputs(torch.nn.Module):  # type: ignore[misc]
        """The model, called with these names."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = self.model(**dict(zip(names, inputs, strict=True)), return_dict=True)
            return tuple(value for value in found.values() if isinstance(value, torch.Tensor))

    # `torch.export` names inputs after the arguments.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    arguments = [inspect.Parameter(name, kind) for name in ("self", *names)]
    PlainOutputs.forward.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
    return PlainOutputs().eval()


def _loaded(path: Path) -> Any:
    """The model with its weights, in single precision."""
    config = folder_config(path)
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    found: Any = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise ModelFileError(
            f"{path}: {CONFIG} names the class {printable(name, 60)!r}, which transformers "
            f"{transformers.__version__} does not have; code of the folder's own is not run: export the "
            "model to ONNX and give that file"
        )
    if config.get("quantization_config") is not None:
        raise ImportFailed(f"{path.name}: quantised weights are not read: give the model as it was before")
    for key, value in config.items():
        # A small file is not to make much work.
        if "layers" in key and isinstance(value, int) and value > MAX_LAYERS:
            raise ModelFileError(
                f"{path}: {CONFIG}: {printable(key, 60)} {value} is over {MAX_LAYERS}: save the "
                "model again with save_pretrained"
            )
    if not any(path.glob("*.safetensors")):
        raise ModelFileError(
            f"{path} has no *.safetensors; weights in pickles are not read: save the model again with "
            "save_pretrained"
        )
    try:
        own: Any = found
        read = own.config_class.from_pretrained(path, local_files_only=True)
        model, loaded = own.from_pretrained(
            path,
            config=read,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, AssertionError) as error:
        raise ModelFileError(
            f"{path}: transformers cannot read the model ({printable(error, 200)}): download the folder again"
        ) from error
    # The library draws what is missing at random, and says so in a log.
    if missing := sorted(loaded["missing_keys"]):
        raise ModelFileError(
            f"{path} has no weights for {len(missing)} tensors of {found.__name__} "
            f"({printable(', '.join(missing[:3]), 200)}): download the folder again, or name in "
            f"{CONFIG} the class that was saved"
        )
    return model.eval()


def _text(config: Any, model: Any) -> Declared:
    """Numbers of tokens and the mask of those that count; with images if the model takes both, as CLIP."""
    images = getattr(config, "vision_config", None)
    config = getattr(config, "text_config", config)
    taken = inspect.signature(model.forward).parameters
    names = ["input_ids", *(name for name in ("attention_mask",) if name in taken)]
    if "token_type_ids" in taken and int(getattr(config, "type_vocab_size", 0) or 0) > 1:
        names.append("token_type_ids")
    positions = int(getattr(config, "max_position_embeddings", _TOKENS) or _TOKENS)
    # The positions of RoBERTa and its like begin behind the number of the padding.
    if str(config.model_type) in ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"):
        positions -= int(config.pad_token_id or 0) + 1
    dimensions = (_BATCH_NAME, _TOKENS_NAME)
    sizes = {_BATCH_NAME: _BATCH, _TOKENS_NAME: max(1, min(_TOKENS, positions))}
    declared = [DeclaredInput(name, dimensions, _TOKENS_DTYPE) for name in names]
    if images is None or "pixel_values" not in taken:
        return declared, sizes
    pictures, of_pictures = _image(images, model)
    return [*declared, *pictures], {**sizes, **of_pictures}


def _image(config: Any, model: Any) -> Declared:
    """The inputs of a vision model, [batch, channels, height, width], and the sizes of their dimensions."""
    channels = int(getattr(config, "num_channels", _CHANNELS) or _CHANNELS)
    size = getattr(config, "image_size", None) or _SIDE
    height, width = (int(side) for side in (size if isinstance(size, list | tuple) else (size, size)))
    dimensions = (_BATCH_NAME, channels, "height", "width")
    sizes = {_BATCH_NAME: _BATCH, "height": height, "width": width}
    return [DeclaredInput("pixel_values", dimensions, _VALUES_DTYPE)], sizes


def _spectrum(config: Any, model: Any) -> Declared | None:
    """A spectrogram: [batch, bands, frames] of Whisper, [batch, frames, values of a frame] of others.

    None if the configuration says neither.
    """
    if config.model_type == "whisper":
        dimensions = (_BATCH_NAME, int(config.num_mel_bins), "frames")
        # The first convolutions of Whisper halve its frames.
        sizes = {_BATCH_NAME: _BATCH, "frames": 2 * int(config.max_source_positions)}
        return [DeclaredInput("input_features", dimensions, _VALUES_DTYPE)], sizes
    values = next((getattr(config, name) for name in _VALUES_OF_FRAME if hasattr(config, name)), None)
    return None if values is None else _frames("input_features", int(values), _FRAMES)


def _speech(config: Any, model: Any) -> Declared:
    """The inputs of a speech model, [batch, samples], or [batch, frames, bands] of a spectrogram."""
    if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
        # Of the Audio Spectrogram Transformer, whose positions are for this number of frames.
        return _frames("input_values", int(config.num_mel_bins), int(config.max_length))
    sizes = {_BATCH_NAME: _BATCH, "samples": _SAMPLES}
    return [DeclaredInput("input_values", (_BATCH_NAME, "samples"), _VALUES_DTYPE)], sizes


def _frames(name: str, values: int, frames: int) -> Declared:
    dimensions = (_BATCH_NAME, "frames", values)
    return [DeclaredInput(name, dimensions, _VALUES_DTYPE)], {_BATCH_NAME: _BATCH, "frames": frames}


_INPUTS: dict[str, Declare] = {
    "input_ids": _text,
    "pixel_values": _image,
    "input_features": _spectrum,
    "input_values": _speech,
}
