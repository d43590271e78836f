"""A training kit: a folder with the examples, compressed, read with Python's library alone.

sentences.jsonl.xz    the file of examples, see `research.pretraining.sentences`
earlier.jsonl.xz      examples of an earlier training, of rules that have not changed since; may be missing
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host.errors import TlmError
from host.files import write_whole
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.training.example import Example, content_of, example_from
from research.pretraining.sentences import Sentences, read_sentences

DATA, EARLIER = "sentences.jsonl.xz", "earlier.jsonl.xz"
# Of the examples when they are unpacked.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class KitData:
    """What a kit has.

    Attributes:
        sentences: examples by the present rules; some are withheld.
        earlier: further examples to train on.
    """

    sentences: Sentences
    earlier: Sequence[Example]


def write_kit(kit: Path, text: str, earlier: Sequence[Example] = ()) -> int:
    """Write a kit from the text of a file of examples; the number of its bytes.

    Raises:
        TlmError: it cannot be written.
    """
    data = lzma.compress(text.encode(), preset=6)
    lines = "".join(json.dumps(content_of(example)) + "\n" for example in earlier)
    more = lzma.compress(lines.encode(), preset=6)
    try:
        kit.mkdir(parents=True, exist_ok=True)
        write_whole(kit / DATA, data)
        write_whole(kit / EARLIER, more)
    except OSError as error:
        raise TlmError(f"{kit}: {error.strerror or error}; give another folder") from error
    return len(data) + len(more)


def read_kit(kit: Path, vocabulary: Vocabulary) -> KitData:
    """The examples of a kit.

    Raises:
        TlmError: it is missing or damaged, or its vocabulary is not the beginning of this one.
    """
    sentences = read_sentences(_text(kit / DATA), kit / DATA, vocabulary)
    path = kit / EARLIER
    lines = _text(path).splitlines() if path.exists() else []
    try:
        contents = [json.loads(line) for line in lines]
    except ValueError as error:
        raise TlmError(f"{path} is damaged ({error}); make the kit again") from error
    earlier = [example_from(path, number, content) for number, content in enumerate(contents, start=1)]
    return KitData(sentences, earlier)


def _text(path: Path) -> str:
    try:
        unpacking = lzma.LZMADecompressor()
        data = unpacking.decompress(path.read_bytes(), _MOST_BYTES)
        if not unpacking.eof:
            raise ValueError("cut off or too large")
        return data.decode()
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise TlmError(f"{path} cannot be read ({error}); make the kit again") from error
