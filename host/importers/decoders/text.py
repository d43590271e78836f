"""A text of the user's as tokens of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.contract.manifest import TOKENIZER
from device_agent.contract.text import printable
from host.errors import EdgeError, ModelFileError, UserError
from host.importers.decoders.folder import ModelFolder
from host.language_file import refuse_pointer
from host.sandbox import Limits, Unforeseen, Worker, WorkerLost

# More of a text is not looked at: each token is a run on the device, and logits of the whole vocabulary here.
MOST_TOKENS = 256
# Of a text that weights are rounded by: in pieces of so many as above, which need no more memory.
CALIBRATION_TOKENS = 4 * MOST_TOKENS
_BYTES_OF_A_TOKEN = 64
# That of the largest vocabularies of today has some tens of millions.
_TOKENIZER_BYTES = 1 << 27
# What reading a tokenizer takes at most, with the library's own.
_CPU_S, _CPU_S_PER_MB = 20.0, 1.0
_MEMORY_BYTES, _MEMORY_PER_BYTE = 1 << 30, 64
# A text by which roundings are judged.
_SAMPLE = """The board in the workshop has four cores and a small fan. Its user writes a letter every Sunday,
in which she says how the week was: what the weather did, who came by, and why the old program took so long.
"It is not the processor," she wrote in May, "it is the memory, which gives four gigabytes in a second and no
more, however one asks." So the numbers were made smaller, from sixteen bits to four, and the answers came
faster. Were they still right? One has to look. 17 of 20 were the same, 2 were better, and 1 was wrong."""


def tokens_of_text(
    path: Path,
    model: ModelFolder,
    context: int,
    vocabulary: int,
    flag: str = "--text",
    most: int = MOST_TOKENS,
) -> np.ndarray:
    """The first tokens of a text file.

    Args:
        path: of the text, UTF-8.
        model: with the tokenizer.
        context: most tokens of the model's state.
        vocabulary: tokens that the model knows.
        flag: the option that the file is given by.
        most: tokens that are looked at, beside those of the context.

    Returns:
        (n) int32, n at most `context` and `most`.

    Raises:
        UserError: no such file, no text, no tokenizer, or a text of less than two tokens.
    """
    asked = f"{flag} {printable(path)}"
    if model.tokenizer is None:
        raise UserError(
            f"{asked}: {printable(model.path)} has no tokenizer: put its tokenizer.json beside it, or leave "
            f"{flag} out"
        )
    text = _read(path, asked, most)
    tokens = _encoded(model.tokenizer, text, asked)[: min(context, most)]
    if len(tokens) < 2:
        raise UserError(f"{asked}: {len(tokens)} token(s): give a text of two or more")
    beyond = next((token for token in tokens if not 0 <= token < vocabulary), None)
    if beyond is not None:
        raise UserError(
            f"{asked}: the tokenizer gives token {beyond}, the model knows 0 to {vocabulary - 1}: give the "
            "tokenizer.json that belongs to the model"
        )
    return np.array(tokens, np.int32)


@dataclass(frozen=True)
class Spoken:
    """What a tokenizer knows.

    Attributes:
        tokens: the greatest of its tokens and all before; 0 where there is none.
        sample: a text in English as tokens; none where it cannot be written so.
    """

    tokens: int = 0
    sample: tuple[int, ...] = ()


def require_tokenizer(model: ModelFolder) -> Spoken:
    """What a model's tokenizer knows; nothing where there is none.

    Raises:
        ModelFileError: it is damaged, or none: nothing of it is installed.
        OSError: it cannot be read.
    """
    if model.tokenizer is None:
        return Spoken()
    try:
        tokens, sample = _asked(model.tokenizer, "tokens_of_file")
        return Spoken(int(tokens), tuple(map(int, sample)))
    except (Unforeseen, WorkerLost) as error:
        where = model.tokenizer if isinstance(model.tokenizer, Path) else model.path
        raise ModelFileError(
            f"{printable(where)}: the tokenizer cannot be used: {printable(error, 200)}: download it again, "
            "or remove it and give prompts as numbers of tokens"
        ) from error


def tokens_of_file(path: str) -> tuple[int, list[int]]:
    """In the worker: how many tokens a tokenizer has, see `Spoken`, and the sample in them."""
    return _used(path, lambda tokenizer: (_count(tokenizer), _sample(tokenizer)))  # type: ignore[no-any-return]


def encoded_by_file(path: str, text: str) -> list[int]:
    """In the worker: the tokens of a text by a tokenizer."""
    return [int(token) for token in _used(path, lambda tokenizer: tokenizer.encode(text).ids)]


def _count(tokenizer: Any) -> int:
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def _sample(tokenizer: Any) -> list[int]:
    try:
        return [int(token) for token in tokenizer.encode(_SAMPLE).ids]
    except Exception:  # noqa: BLE001  # such as words that it has no tokens for: nothing depends on this text
        return []


def _used(path: str, use: Callable[[Any], Any]) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    # As on the device.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return use(tokenizer)


def _asked(tokenizer: Path | bytes, function: str, **request: str) -> Any:
    """What a function of this module answers about a tokenizer, in a worker.

    There are files that the library aborts its process at.
    """
    content = tokenizer if isinstance(tokenizer, bytes) else _content(tokenizer)
    cpu_s = _CPU_S + _CPU_S_PER_MB * len(content) / 1e6
    memory = _MEMORY_BYTES + _MEMORY_PER_BYTE * len(content)
    with Worker((), Limits(memory, cpu_s, 4 * cpu_s, _TOKENIZER_BYTES)) as worker:
        path = worker.scratch / TOKENIZER
        path.write_bytes(content)
        return worker.call(f"{__name__}:{function}", {"path": str(path), **request})


def _content(tokenizer: Path) -> bytes:
    with tokenizer.open("rb") as stream:
        content = stream.read(_TOKENIZER_BYTES + 1)
    refuse_pointer(tokenizer, content)
    if len(content) > _TOKENIZER_BYTES:
        raise ModelFileError(
            f"{printable(tokenizer)} has more than {_TOKENIZER_BYTES} bytes: give the model's own file"
        )
    return content


def _read(path: Path, asked: str, most: int) -> str:
    """As much of a file as can be needed."""
    try:
        with path.open("rb") as stream:
            content = stream.read(most * _BYTES_OF_A_TOKEN)
            whole = not stream.read(1)
    except OSError as error:
        raise UserError(f"{asked}: {error.strerror or error}: give a file of text") from error
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        # The last character of a piece may be cut off.
        if not whole and error.start >= len(content) - 3:
            return content[: error.start].decode()
        raise UserError(
            f"{asked}: no text in UTF-8 (byte {error.start}): give a text, or convert it"
        ) from error


def _encoded(tokenizer: Path | bytes, text: str, asked: str) -> list[int]:
    try:
        return [int(token) for token in _asked(tokenizer, "encoded_by_file", text=text)]
    except (EdgeError, OSError) as error:
        raise UserError(f"{asked}: the tokenizer cannot be used: {printable(error, 200)}") from error
