"""A file of training examples: a header, then a line for each task. Reading it needs no compiler.

{"schema": ..., "seed": 0, "vocabulary": ..., "tokens": 786, "rules": {"tiled": 4, ...}}
{"index": 0, "prompt": [...], "programs": [[[token numbers], slower], ...]}    `slower`: estimate / best
{"index": 1, "left_out": "held out"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host.errors import TlmError
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.training.example import Example, example_from

SCHEMA = "edgetlm.sentences/3"


@dataclass(frozen=True)
class Sentences:
    """The content of a file.

    Attributes:
        seed: of everything that was drawn.
        tokens: of the vocabulary when the file was made, the beginning of this one.
        rules: version of each rule when the file was made.
        examples: in the order of their numbers, from 0.
        whole: the text without a last line that was cut off while it was written.
    """

    seed: int
    tokens: int
    rules: Mapping[str, int]
    examples: Sequence[Example]
    whole: str


def header_of(seed: int, vocabulary: Vocabulary, rules: Mapping[str, int]) -> str:
    """The first line of a new file."""
    header = {
        "schema": SCHEMA,
        "seed": seed,
        "vocabulary": vocabulary.version,
        "tokens": len(vocabulary),
        "rules": dict(rules),
    }
    return json.dumps(header) + "\n"


def read_sentences(text: str, path: Path, vocabulary: Vocabulary) -> Sentences:
    """The content of a file.

    Args:
        text: of the file.
        path: of the file, for messages.
        vocabulary: that its own has to be the beginning of.

    Raises:
        TlmError: it is damaged, of another schema, or its vocabulary is not the beginning of this one.
    """
    whole = text[: text.rfind("\n") + 1]
    first, *lines = whole.splitlines() or [""]
    header: Any = _parsed(path, 1, first)
    try:
        if header["schema"] != SCHEMA:
            raise ValueError(f"no {SCHEMA}")
        seed, tokens, version = int(header["seed"]), int(header["tokens"]), str(header["vocabulary"])
        rules = {str(name): int(number) for name, number in header["rules"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TlmError(f"{path}, line 1 is no header ({error}); remove the file") from error
    vocabulary.check_prefix(tokens, version, str(path))
    examples: list[Example] = []
    for number, line in enumerate(lines, start=2):
        example = example_from(path, number, _parsed(path, number, line))
        if example.index != len(examples):
            raise TlmError(f"{path}, line {number}: example {example.index} is out of order; remove it")
        examples.append(example)
    return Sentences(seed, tokens, rules, examples, whole)


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise TlmError(f"{path}, line {number} is damaged ({error}); remove the file") from error
