"""Text to tokens and back, by the `tokenizer.json` of a bundle."""

from __future__ import annotations

import os
from typing import Any, List, Sequence

from device_agent.contract.manifest import TOKENIZER
from device_agent.contract.text import printable
from device_agent.errors import AgentError

# What stands for bytes that are no character, or not a whole one yet.
_INCOMPLETE = "\ufffd"
# A character has four bytes at most, and so has at most four tokens: what is longer does not become one.
_MOST_HELD = 4
# Tokens without a character that are decoded with those behind them: they may be of one that stands for none.
_MOST_AGAIN = 16
# Tokens of the prompt that are decoded before the first new one: some tokenizers drop a leading space.
_BEFORE = 4


class Tokenizer:
    """A bundle's tokenizer.

    Args:
        folder: of the bundle, whose files have been checked.

    Raises:
        AgentError: the bundle has none, it cannot be read, or the package `tokenizers` is not installed.
    """

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, TOKENIZER)
        if not os.path.isfile(path):
            raise AgentError(
                "bad_request",
                "%s has no %s: deploy a model folder that has one, or give the prompt as token numbers from"
                " Python" % (folder, TOKENIZER),
            )
        try:
            from tokenizers import Tokenizer as Implementation
        except ImportError as error:
            raise AgentError(
                "engine",
                "a prompt of text needs the package tokenizers: pip install tokenizers, or give token "
                "numbers from Python",
            ) from error
        self._path = path
        try:
            self._implementation: Any = Implementation.from_file(path)
            # What its training cut texts to and filled them up with is no part of a prompt.
            self._implementation.no_truncation()
            self._implementation.no_padding()
        except BaseException as error:
            raise self._failed(error, "be read") from error

    def encode(self, text: str, around: bool = True) -> List[int]:
        """The tokens of a text.

        Args:
            text: any.
            around: whether to put those around it that the tokenizer has for a text: what a chat template
                writes has them already.

        Raises:
            ValueError: the text holds bytes that are no UTF-8, as those of a terminal or a file may be.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("the prompt is not UTF-8: give it in UTF-8") from None
        try:
            found = self._implementation.encode(text, add_special_tokens=around)
        except BaseException as error:
            raise self._failed(error, "be used for this text") from error
        return [int(token) for token in found.ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones."""
        return self._decoded(tokens)

    def special(self, token: int) -> str:
        """The text of a special token, which `decode` leaves out; "" of any other."""
        if self.decode([token]):
            return ""
        return self._decoded([token], special=True)

    def _decoded(self, tokens: Sequence[int], special: bool = False) -> str:
        try:
            return str(self._implementation.decode(list(tokens), skip_special_tokens=not special))
        except BaseException as error:
            raise self._failed(error, "be used for what the model wrote") from error

    def _failed(self, error: BaseException, what: str) -> BaseException:
        """The error of a tokenizer that cannot do something; itself where it is not the library's.

        The library raises nothing narrower than `Exception`, and where it panics, what is none.
        """
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            return error
        return AgentError("bundle", "%s cannot %s: %s" % (self._path, what, printable(error, 200)))


class TextPieces:
    """The text of tokens that come one after the other.

    Args:
        tokenizer: that knows them.
        prompt: the tokens before the first.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(prompt[-_BEFORE:])
        # The text of tokens depends on those before: what follows `_begin` is decoded together, and the part
        # up to `_told` has been given.
        self._begin, self._told = 0, len(self._tokens)
        # Characters behind `_told` that have been given, and the token from which on the others are held.
        self._ahead, self._held = 0, self._told

    def add(self, token: int) -> str:
        """The text that one more token makes whole; "" while there is a part of a character."""
        self._tokens.append(token)
        before, text = self._texts()
        given = len(before) + self._ahead
        held = len(self._tokens) - self._held
        if len(text) <= given or (text.endswith(_INCOMPLETE) and held < _MOST_HELD):
            return ""
        whole = text[given:].rstrip(_INCOMPLETE)
        if text.endswith(_INCOMPLETE) and whole:
            # Each token ends a character and begins the next one, whose beginning is the last token's.
            self._ahead, self._held = self._ahead + len(whole), len(self._tokens) - 1
            return whole
        if text.endswith(_INCOMPLETE):
            # What the first of those held has begun is no character, what another one has may become one.
            text = self._tokenizer.decode(self._tokens[self._begin : self._held + 1])
            if self._told - self._begin > _MOST_AGAIN:
                self._begin = self._told
            self._told = self._held + 1
        else:
            self._begin, self._told = self._told, len(self._tokens)
        self._ahead, self._held = 0, self._told
        return text[given:]

    def special(self, token: int) -> str:
        """The text of a special token, which is no part of the text; "" of any other."""
        return self._tokenizer.special(token)

    def rest(self) -> str:
        """The text that is left at the end, without an incomplete character."""
        before, text = self._texts()
        return text[len(before) + self._ahead :].rstrip(_INCOMPLETE)

    def _texts(self) -> List[str]:
        return [
            self._tokenizer.decode(self._tokens[self._begin : end]) for end in (self._told, len(self._tokens))
        ]
