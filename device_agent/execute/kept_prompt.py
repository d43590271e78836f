"""The state of a prompt in a file, so that another process need not compute it again.

A file is 16 bytes that name the format, the length of the header (4 bytes, little-endian), the header, the
bytes of the state tensors in order, and the SHA-256 of all this. The header is a JSON object: `content` is
the digest of what the bundle computes, `tokens` are those that the state is of.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from typing import Any, BinaryIO, Callable, List, NamedTuple, Sequence

from device_agent.contract.strict_json import parse
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute import ffi

_MAGIC = b"EDGETLM-PROMPT1\n"
_LENGTH = struct.Struct("<I")
# Of the header: what one token takes, and the rest.
_TOKEN_BYTES, _OTHER_BYTES = 16, 256


class StateTensor(NamedTuple):
    """A tensor of the state, and its bytes."""

    tensor: Any
    size: int


def write_prompt(path: str, content: str, tokens: Sequence[int], state: Sequence[StateTensor]) -> None:
    """Writes a file, whole or not at all.

    Args:
        path: of the file; one that is there is replaced.
        content: digest of what the bundle computes.
        tokens: that the state is of.
        state: of the model.

    Raises:
        OSError: it cannot be written.
    """
    header = json.dumps({"content": content, "tokens": list(tokens)}).encode()
    partial = "%s.%d.part" % (path, os.getpid())
    digest = hashlib.sha256()
    try:
        with open(partial, "wb") as file:
            for data in (_MAGIC, _LENGTH.pack(len(header)), header):
                digest.update(data)
                file.write(data)
            for one in state:
                held = ffi.to_bytes(one.tensor, one.size)
                digest.update(held)
                file.write(held)
            file.write(digest.digest())
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def read_prompt(
    path: str, content: str, context: int, state: Sequence[StateTensor], begin: Callable[[], None]
) -> List[int]:
    """Fills the state out of a file.

    Args:
        path: of the file.
        content: digest of what the bundle computes.
        context: most tokens.
        state: of the model.
        begin: called before the state changes. What it holds is of no use if this function fails then.

    Returns:
        The tokens that the state is of now.

    Raises:
        AgentError: no such file, a damaged one, or one of another bundle.
        OSError: it cannot be read.
    """

    def fail(text: str) -> AgentError:
        return AgentError("bad_request", "%s: %s: save the prompt again" % (printable(path), text))

    if not os.path.isfile(path):
        raise fail("there is no such file")
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        tokens = _header(file, digest, content, context, fail)
        rest = sum(one.size for one in state) + digest.digest_size
        if os.fstat(file.fileno()).st_size - file.tell() != rest:
            raise fail("it is no whole file of a prompt")
        begin()
        for one in state:
            data = file.read(one.size)
            if len(data) != one.size:
                raise fail("it became shorter")
            digest.update(data)
            ffi.copy_from_buffer(one.tensor, data)
        if file.read() != digest.digest():
            raise fail("it is damaged")
    return tokens


def _header(
    file: BinaryIO, digest: Any, content: str, context: int, fail: Callable[[str], AgentError]
) -> List[int]:
    """The tokens, where the file is of this bundle."""
    start = file.read(len(_MAGIC) + _LENGTH.size)
    if len(start) != len(_MAGIC) + _LENGTH.size or not start.startswith(_MAGIC):
        raise fail("it is no file of a prompt")
    [length] = _LENGTH.unpack(start[len(_MAGIC) :])
    most = context * _TOKEN_BYTES + _OTHER_BYTES
    if length > most:
        raise fail("its header is longer than any")
    header = file.read(length)
    digest.update(start + header)
    try:
        fields = parse(header, most, "its header")
    except ValueError as error:
        raise fail(printable(error)) from error
    if not isinstance(fields, dict) or set(fields) != {"content", "tokens"}:
        raise fail("its header is not that of a prompt")
    if fields["content"] != content:
        raise fail("it is of another bundle")
    tokens = fields["tokens"]
    if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
        raise fail("its tokens are no numbers")
    return tokens
