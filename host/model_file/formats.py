"""The format of a model file, by its content and then by its suffix; a folder is one of transformers."""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.language_file import CONFIG, language_format
from host.model_file.other_files import (
    archive_format,
    is_zip,
    refuse_other_file,
    refuse_other_folder,
)

# The first line of a Git LFS pointer has 43 bytes.
_HEAD_BYTES = 64
# Names beside a file that is not there.
_LOOKED_AT = 1000
# What a path makes of an address: two slashes became one.
_ADDRESS = re.compile(r"(?:https?|ftp|s3|gs):/")
_SUFFIXES = {".onnx": "onnx", ".pt2": "pt2", ".tflite": "tflite"}


def check_file(path: Path) -> None:
    """Refuse a missing model file before anything slow starts.

    Raises:
        ModelFileError: no such file, one that the system refuses (a name that is too long, a folder that this
            user may not enter), or neither a file nor a folder of transformers.
    """
    try:
        there = path.exists()
    except OSError as error:
        raise ModelFileError(
            f"{path}: {error.strerror}: give a path that this user may read, of a model file"
        ) from error
    if not there:
        address = _ADDRESS.match(str(path))
        if address:
            written = f"{address[0]}/{str(path)[address.end() :]}"
            raise ModelFileError(
                f"{printable(written, 200)} is an address, which is not fetched: download the file and give "
                "its path, or hf://ORG/MODEL"
            )
        raise ModelFileError(f"{path}: no such file: {_nearest(path)}")
    if path.is_dir() and not language_format(path):
        refuse_other_folder(path)
        raise ModelFileError(
            f"{path} is a folder without {CONFIG}: give an ONNX, .pt2, TFLite or GGUF file, or a folder of "
            f"transformers with {CONFIG} and *.safetensors"
        )
    if not path.is_dir() and not path.is_file():
        raise ModelFileError(f"{path} is not a file: give an ONNX, .pt2, TFLite or GGUF file")


def _nearest(path: Path) -> str:
    """What to type where there is no such file."""
    try:
        beside = [one.name for one in islice(path.absolute().parent.iterdir(), _LOOKED_AT)]
    except OSError:
        beside = []
    models = [name for name in beside if Path(name).suffix.lower() in (*_SUFFIXES, ".gguf")]
    found = get_close_matches(path.name, beside, n=1) or models[:1]
    if found:
        return f"did you mean {printable(path.with_name(found[0]))}?"
    return "give the path of an ONNX, .pt2, TFLite or GGUF file"


def detect_format(path: Path) -> str:
    """The format of a model file.

    Returns:
        "onnx", "pt2", "tflite", "gguf", "ultralytics" of a checkpoint that they export, or "transformers" or
        "encoder" of a folder.

    Raises:
        ModelFileError: missing, empty, damaged, or of no known format; the message says what a familiar file
            is, and what makes a model of it.
        OSError: it cannot be read.
    """
    check_file(path)
    language = language_format(path)
    if language:
        return language
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if not head:
        raise ModelFileError(f"{path}: the file is empty: export or download it again")
    if head[4:8] == b"TFL3":
        return "tflite"
    refuse_other_file(path, head)
    if is_zip(path):
        return archive_format(path)
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()]
    if head[:1] == b"\x08":  # an ONNX file starts with its version, field 1
        return "onnx"
    raise ModelFileError(
        f"{path}: not a model of a known format: use .onnx, .pt2 (torch.export), .tflite or .gguf"
    )
