"""Texts by their hash, kept on disk so that a difference between two recordings can be shown."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

# 96 bits: two texts never meet by accident, and a line of a recording stays short.
_DIGITS = 24


def digest(content: bytes) -> str:
    """The hash that recordings hold."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def text_of(function: Any) -> str:
    """A function or module of TensorIR as text, with its structural hash.

    The text has names and attributes, which the structural hash leaves out; the hash has every bit of a
    constant, which a printer may round.
    """
    text: str = function.script()
    return f"{text}\n# structural hash {tvm_ffi.structural_hash(function) & (2**64 - 1):016x}\n"


def text_of_module(module: Any) -> str:
    """A module that is ready for code generation as text, with the hash of all that it is made of.

    The structural hash takes pointers of the host's part by their address, which no two processes share.
    """
    text: str = module.script()
    return f"{text}\n# content {digest(tvm.ir.save_json(module).encode())}\n"


class TextStore:
    """Texts in a folder.

    Args:
        folder: where they lie; made when the first is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, text: str) -> str:
        """Keep a text; returns its hash."""
        content = text.encode()
        key = digest(content)
        path = self._path(key)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, gzip.compress(content, 6, mtime=0))
        return key

    def get(self, key: str) -> str | None:
        """The text of a hash, None where it was never kept here."""
        path = self._path(key)
        return gzip.decompress(path.read_bytes()).decode() if path.is_file() else None

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.gz"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; several processes may write the same."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).replace(path)
