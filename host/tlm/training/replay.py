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

from device_agent.contract.text import printable
from host.errors import TlmError
from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary, rule_token
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
        "rules": rule_versions(),
    }
    lines = [header, *map(content_of, chosen)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return len(chosen)


def read_sample(path: Path, vocabulary: Vocabulary) -> tuple[dict[str, int], list[Example]]:
    """The versions of the rules when a file was written, and its examples.

    Raises:
        TlmError: it is missing, damaged, of another schema, or its vocabulary is not the beginning of this.
    """
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        header, *contents = map(json.loads, lines)
        schema, rules = str(header["schema"]), dict(header["rules"])
        tokens, version = int(header["tokens"]), str(header["vocabulary"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise TlmError(
            f"{path} cannot be read ({type(error).__name__}: {error}); install the package again"
        ) from error
    if schema != SCHEMA:
        raise TlmError(f"{path}: schema {printable(schema, 40)}, this is {SCHEMA}; install the package again")
    vocabulary.check_prefix(tokens, version, str(path))
    return rules, [example_from(path, number, content) for number, content in enumerate(contents, start=2)]


def read_replay(path: Path, vocabulary: Vocabulary) -> list[Example]:
    """The examples of a file, without those of rules whose version is another now.

    Raises:
        TlmError: see `read_sample`.
    """
    rules, examples = read_sample(path, vocabulary)
    present = rule_versions()
    kept = {rule_token(name) for name, known in rules.items() if present.get(name) == known}
    numbers = {number for number, token in enumerate(vocabulary.tokens) if token in kept}
    return [example for example in examples if not numbers.isdisjoint(example.prompt)]
