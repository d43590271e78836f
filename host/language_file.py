"""Which models are language models, by what lies there: these are read by an importer of their own."""

from __future__ import annotations

from pathlib import Path

# What config.json makes of a folder, and the first bytes of a GGUF file.
CONFIG = "config.json"
GGUF_MAGIC = b"GGUF"
_FORMATS = ("transformers", "gguf")


def is_language_model(format_name: str) -> bool:
    """Whether a format of `host.model_file.detect_format` is one of language models."""
    return format_name in _FORMATS


def language_format(path: Path) -> str:
    """The format of a language model: "transformers" of a folder with config.json, "gguf" of a file.

    Returns:
        "" where there is neither.

    Raises:
        OSError: the file cannot be read.
    """
    if path.is_dir():
        return _FORMATS[0] if (path / CONFIG).is_file() else ""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return _FORMATS[1] if stream.read(len(GGUF_MAGIC)) == GGUF_MAGIC else ""
