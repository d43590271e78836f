"""A tokenizer of the words of `tests.tiny_decoder`: token 3 is "three"."""

from __future__ import annotations

from pathlib import Path

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
WORDS.append("end")


def write_tokenizer(path: Path) -> Path:
    """A `tokenizer.json`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path))
    return path
