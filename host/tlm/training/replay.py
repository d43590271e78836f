"""Sentences of pre-training that are shipped with the weights: fine-tuning on one board repeats them.

The file is a sample of what the model was pre-trained on, in the same lines, compressed.
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Sequence
from pathlib import Path

from host.errors import TlmError
from host.model import SPACE_VERSION
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.training.example import Example, content_of, example_from

REPLAY = "replay.jsonl.gz"
SCHEMA = "edgetlm.replay/2"


def write_replay(
    path: Path, examples: Sequence[Example], count: int, seed: int, vocabulary: Vocabulary
) -> int:
    """Writes a sample of examples; the same arguments give the same bytes.

    Args:
        path: of the file.
        examples: to draw from; those left out of training are not drawn.
        count: examples at most.
        seed: of the sample.
        vocabulary: of the examples.

    Returns:
        How many were written.
    """
    usable = [example for example in examples if example.programs]
    chosen = sorted(
        random.Random(f"{seed}/replay").sample(usable, min(count, len(usable))), key=lambda one: one.index
    )
    header = {
        "schema": SCHEMA,
        "vocabulary": vocabulary.version,
        "tokens": len(vocabulary),
        "space_version": SPACE_VERSION,
    }
    lines = [header, *map(content_of, chosen)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return len(chosen)


def read_replay(path: Path, vocabulary: Vocabulary) -> list[Example]:
    """The examples of a file.

    Raises:
        TlmError: it is missing, damaged, of another space version, or its vocabulary is not the beginning of
            this one.
    """
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        header, *contents = map(json.loads, lines)
        found = (header["schema"], header["space_version"])
        tokens, version = int(header["tokens"]), str(header["vocabulary"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise TlmError(
            f"{path} cannot be read ({type(error).__name__}: {error}); install the package again"
        ) from error
    if found != (SCHEMA, SPACE_VERSION):
        raise TlmError(
            f"{path}: sentences of schema {found[0]} and space version {found[1]}, this is {SCHEMA} and "
            f"{SPACE_VERSION}; install the package again"
        )
    vocabulary.check_prefix(tokens, version, str(path))
    return [example_from(path, number, content) for number, content in enumerate(contents, start=2)]
