"""Which models are language models, by what lies there: these are read by an importer of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from device_agent.contract.strict_json import parse
from host.errors import ModelFileError

# What config.json makes of a folder, and the first bytes of a GGUF file.
CONFIG = "config.json"
GGUF_MAGIC = b"GGUF"
# A folder of transformers with another model: an encoder, or one for images or sound.
ENCODER = "encoder"
_FORMATS = ("transformers", "gguf")
# What Git without its extension for large files has in place of one.
_LFS = b"version https://git-lfs.github.com/spec/"
CONFIG_BYTES = 1 << 20
# `model_type` of what host.importers.decoders reads, and the ends of classes of other language models.
DECODER_TYPES = (
    *("gemma", "gemma2", "gemma3_text", "gpt2", "llama", "mistral", "phi3", "qwen2", "qwen3"),
    "smollm3",
)
_DECODER_CLASSES = ("ForCausalLM", "LMHeadModel")


def is_language_model(format_name: str) -> bool:
    """Whether a format of `host.model_file.detect_format` is one of language models."""
    return format_name in _FORMATS


def language_format(path: Path) -> str:
    """The format of what is no single file, and of a GGUF file.

    Returns:
        "transformers" of a folder with config.json that has a language model, "encoder" of one with another
        model, "gguf" of a file; "" where there is none of them.

    Raises:
        OSError: the file cannot be read.
    """
    if path.is_dir():
        return _folder_format(path) if (path / CONFIG).is_file() else ""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return _FORMATS[1] if stream.read(len(GGUF_MAGIC)) == GGUF_MAGIC else ""


def refuse_pointer(path: Path, head: bytes) -> None:
    """Refuse what stands for a file that was not fetched.

    Args:
        path: of the file.
        head: its first bytes, 43 at least.

    Raises:
        ModelFileError: it is a pointer of Git LFS.
    """
    if head.startswith(_LFS):
        raise ModelFileError(
            f"{path} is a pointer of Git LFS, not the file itself: fetch it with git lfs pull"
        )


def folder_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json.

    Raises:
        ModelFileError: it is no JSON object, or larger than any.
        OSError: it cannot be read.
    """
    return saved_object(folder / CONFIG, CONFIG_BYTES)


def saved_object(path: Path, most: int) -> dict[str, Any]:
    """A file of such a folder that is one JSON object.

    Args:
        path: of the file.
        most: bytes that it may have.

    Raises:
        ModelFileError: it is no JSON object, or larger.
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(most + 1)
        refuse_pointer(path, content)
        value = parse(content, most, path.name)
    except ValueError as error:
        raise ModelFileError(f"{path.parent}: {error}: save the model again with save_pretrained") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: not a JSON object: save the model again with save_pretrained")
    return value


def _folder_format(folder: Path) -> str:
    try:
        config = folder_config(folder)
    except ModelFileError:
        # The reader of the folder reports what is wrong with it.
        return _FORMATS[0]
    classes = config.get("architectures")
    if config.get("model_type") in DECODER_TYPES or not isinstance(classes, list) or not classes:
        return _FORMATS[0]
    return _FORMATS[0] if str(classes[0]).endswith(_DECODER_CLASSES) else ENCODER
