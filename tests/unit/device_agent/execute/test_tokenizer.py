"""Pieces of text are whole characters."""

from __future__ import annotations

import pytest

from device_agent.errors import AgentError
from device_agent.execute.text.tokenizer import TextPieces, Tokenizer
from tests.tiny_tokenizer import WORDS, write_tokenizer


class Bytes:
    """A token for each byte."""

    def decode(self, tokens):
        return bytes(tokens).decode("utf-8", "replace")


def pieces(data: bytes, prompt: bytes = b"") -> list[str]:
    text = TextPieces(Bytes(), list(prompt))
    return [*(text.add(token) for token in data), text.rest()]


@pytest.mark.parametrize("text", ["abc", "é", "日本語", "a😀b", "é\u0301", ""])
def test_no_piece_has_a_part_of_a_character(text):
    found = pieces(text.encode())
    assert "".join(found) == text
    assert all("\ufffd" not in piece for piece in found)


def test_each_character_is_given_when_it_is_whole():
    assert pieces("aé😀".encode()) == ["a", "", "é", "", "", "", "😀", ""]


class Pairs:
    """A token for two bytes each."""

    def decode(self, tokens):
        return b"".join(token.to_bytes(2, "big") for token in tokens).decode("utf-8", "replace")


def test_tokens_that_each_end_a_character_and_begin_the_next_lose_none():
    data = "aééééééééééé".encode() + b"b"
    tokens = [int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2)]
    text = TextPieces(Pairs(), [])
    found = [text.add(token) for token in tokens]
    assert "".join(found) + text.rest() == data.decode()
    # They are given on the way, and not all at the end.
    assert sum(map(bool, found)) > 2 and all("\ufffd" not in piece for piece in found)


def test_a_character_that_is_cut_off_at_the_end_is_left_out():
    assert "".join(pieces("ab😀".encode()[:-1])) == "ab"


def test_bytes_that_are_no_text_are_not_held_for_ever():
    found = pieces(b"\xff" * 12 + b"abc")
    assert "".join(found).endswith("abc")
    assert any(piece.strip("\ufffd") == "" and piece for piece in found[:8])


@pytest.mark.parametrize("dead", [b"\xff", b"\xff\xf0", "\ufffd".encode()], ids=repr)
def test_a_character_behind_bytes_that_are_no_text_is_not_lost(dead):
    data = b"a" + dead + "😀b".encode()
    assert "".join(pieces(data)) == data.decode("utf-8", "replace")


def test_the_prompt_is_not_given_again():
    assert "".join(pieces(b" text", prompt=b"a long prompt")) == " text"


class Words:
    """Words with a space before each but the first, as many tokenizers decode."""

    def decode(self, tokens):
        return " ".join(f"w{token}" for token in tokens)


def test_the_space_before_the_first_word_is_kept():
    text = TextPieces(Words(), [1, 2])
    assert text.add(3) + text.add(4) + text.rest() == " w3 w4"


def test_a_prompt_of_other_bytes_than_utf8_is_refused(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer(str(tmp_path))
    assert tokenizer.encode(WORDS[3]) == [3]
    with pytest.raises(ValueError, match="the prompt is not UTF-8"):
        tokenizer.encode(b"one \xff".decode("utf-8", "surrogateescape"))


def test_special_tokens_are_told_from_others(tmp_path):
    from tokenizers import Tokenizer as Implementation

    path = write_tokenizer(tmp_path / "tokenizer.json")
    made = Implementation.from_file(str(path))
    made.add_special_tokens([WORDS[7], "<|end|>"])
    made.add_tokens(["<plain>"])
    made.save(str(path))
    tokenizer = Tokenizer(str(tmp_path))
    found = [tokenizer.special(token) for token in (6, 7, len(WORDS), len(WORDS) + 1, 1 << 20)]
    assert found == ["", WORDS[7], "<|end|>", "", ""]
    text = TextPieces(tokenizer, [1])
    assert [text.add(7), text.special(7), text.add(6).strip()] == ["", WORDS[7], WORDS[6]]


def test_what_a_tokenizer_cut_texts_to_in_training_is_no_part_of_a_prompt(tmp_path):
    from tokenizers import Tokenizer as Implementation

    path = write_tokenizer(tmp_path / "tokenizer.json")
    made = Implementation.from_file(str(path))
    made.enable_truncation(2)
    made.enable_padding(length=8)
    made.save(str(path))
    assert Tokenizer(str(tmp_path)).encode(" ".join(WORDS[:5])) == [0, 1, 2, 3, 4]


class PanicException(BaseException):
    """As the library in Rust raises it, which is no `Exception`."""


class Panics:
    """An implementation that meets a fault of its own, or an interruption."""

    def __init__(self, error):
        self.error = error

    def encode(self, *_, **__):
        raise self.error

    decode = encode


def test_a_panic_of_the_library_is_one_line(tmp_path, monkeypatch):
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer(str(tmp_path))
    monkeypatch.setattr(tokenizer, "_implementation", Panics(PanicException("index 7 is out\nof bounds")))
    uses = (lambda: tokenizer.encode("a"), lambda: tokenizer.decode([1]), lambda: tokenizer.special(1))
    for use in uses:
        with pytest.raises(
            AgentError, match=r"tokenizer.json cannot be used for .*: index 7 is out"
        ) as error:
            use()
        assert error.value.kind == "bundle" and str(error.value).isprintable()
    monkeypatch.setattr("tokenizers.Tokenizer", Panics(PanicException("unreachable")))
    monkeypatch.setattr(Panics, "from_file", Panics.encode, raising=False)
    with pytest.raises(AgentError, match=r"tokenizer.json cannot be read: unreachable"):
        Tokenizer(str(tmp_path))
    monkeypatch.setattr(tokenizer, "_implementation", Panics(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode("a")
