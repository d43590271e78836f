"""Files of kept prompts that are not what they should be, for every program that reads them."""

from __future__ import annotations

import hashlib
import json
import struct

from tests import tiny_decoder as tiny

_HEAD = b"EDGETLM-PROMPT1\n"


def other_first_value(whole: bytes, value: float) -> bytes:
    """A file whose state begins with another float32, and whose digest is right."""
    data = bytearray(whole)
    [length] = struct.unpack_from("<I", data, len(_HEAD))
    struct.pack_into("<f", data, len(_HEAD) + 4 + length, value)
    return bytes(data[:-32]) + hashlib.sha256(data[:-32]).digest()


def _with_header(content: str, tokens: object) -> bytes:
    """A file of the tiny decoder, right but for what is given."""
    header = json.dumps({"content": content, "tokens": tokens}).encode()
    data = _HEAD + struct.pack("<I", len(header)) + header + bytes(4 * tiny.CONTEXT)
    return data + hashlib.sha256(data).digest()


def spoiled(whole: bytes, content: str) -> list[tuple[bytes, str]]:
    """Contents of files, and words of what is said of each.

    Args:
        whole: a right file of the tiny decoder.
        content: the digest of its bundle.
    """
    return [
        (b"", "no file of a prompt"),
        (b"GGUF" + whole[4:], "no file of a prompt"),
        (whole[:-1], "no whole file of a prompt"),
        (whole + b"\0", "no whole file of a prompt"),
        (whole[:-40] + b"\1" + whole[-39:], "it is damaged"),
        (_HEAD + struct.pack("<I", 1 << 30) + whole[20:], "header is longer than any"),
        (_HEAD + struct.pack("<I", 5) + whole[20:], "its header"),
        (_with_header("0" * 64, [1]), "it is of another bundle"),
        (_with_header(content, [1, "2"]), "its tokens are no numbers"),
        (_with_header(content, [1, True]), "its tokens are no numbers"),
        (_with_header(content, {"1": 2}), "its tokens are no numbers"),
        (_with_header(content, [1, 13]), "token 13 is not of the model's vocabulary"),
        (_with_header(content, [1, 1 << 40]), "is not of the model's vocabulary"),
        (_with_header(content, []), "the prompt is empty"),
        (_with_header(content, [1] * 33), "has 33 tokens, the model has a context of 32"),
    ]
