"""The bounds of every protocol, out of `limits.json`, which the native executor's build reads too."""

from __future__ import annotations

import json
import os
from typing import NamedTuple


class JsonLimits(NamedTuple):
    """Of any JSON text.

    Attributes:
        depth: of nested arrays and objects.
    """

    depth: int


class TextLimits(NamedTuple):
    """Of text from elsewhere.

    Attributes:
        shown_characters: of one text in a message, a table or a log.
    """

    shown_characters: int


class WireLimits(NamedTuple):
    """Of the protocol between the host and the agent.

    Attributes:
        header_bytes: of a frame's header.
        hello_bytes: of the first request's header, whose sender is not known yet.
        threads: of a session.
    """

    header_bytes: int
    hello_bytes: int
    threads: int


class BundleLimits(NamedTuple):
    """Of a bundle.

    Attributes:
        manifest_bytes: of `manifest.json`.
        signature_bytes: of `manifest.sig`.
        files: number of them.
        file_bytes: of one file.
        total_bytes: of all files.
        name_characters: of the name of a bundle or a file.
        tensors: inputs, and outputs.
        rank: dimensions of a tensor.
        dimension: size of one.
        tensor_bytes: of one tensor.
        parameters: number of them.
        threads: that a model may ask for.
    """

    manifest_bytes: int
    signature_bytes: int
    files: int
    file_bytes: int
    total_bytes: int
    name_characters: int
    tensors: int
    rank: int
    dimension: int
    tensor_bytes: int
    parameters: int
    threads: int


class Limits(NamedTuple):
    """All of them, a field a section of the file."""

    json: JsonLimits
    text: TextLimits
    wire: WireLimits
    bundle: BundleLimits


def _read() -> Limits:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "limits.json")
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    sections = {
        "json": JsonLimits,
        "text": TextLimits,
        "wire": WireLimits,
        "bundle": BundleLimits,
    }
    return Limits(**{name: section(**data[name]) for name, section in sections.items()})


LIMITS = _read()
