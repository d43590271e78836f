"""Text from elsewhere, made fit to be shown: the one function that it passes on its way to people."""

from __future__ import annotations

import unicodedata

from device_agent.contract.limits import LIMITS

# Controls, formats (bidirectional ones among them), surrogates, private use, unassigned, and line breaks.
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_ELLIPSIS = "..."


def printable(text: object, limit: int = LIMITS.text.shown_characters) -> str:
    r"""One line of visible characters.

    White space becomes single spaces. Whatever a terminal or a reader's eye would not show as itself, escape
    sequences and bidirectional overrides among them, becomes an escape such as `\x1b` or `\u202e`.

    Args:
        text: anything; `str` of it is taken.
        limit: longest result in characters; what is longer ends in "...".
    """
    # No character takes less than one place, so what lies beyond the limit need not be looked at.
    words = str(text)[: 4 * limit + len(_ELLIPSIS)].split()
    line = "".join(_visible(character) for character in " ".join(words))
    return line if len(line) <= limit else line[: max(0, limit - len(_ELLIPSIS))] + _ELLIPSIS


def is_printable(text: str) -> bool:
    """Whether `printable` would leave the text as it is, whatever its length."""
    return text == " ".join(text.split()) and not any(map(is_hidden, text))


def is_hidden(character: str) -> bool:
    """Whether a character would not be seen as itself."""
    return unicodedata.category(character) in _HIDDEN


def _visible(character: str) -> str:
    if not is_hidden(character):
        return character
    code = ord(character)
    if code <= 0xFF:
        return "\\x%02x" % code
    return "\\u%04x" % code if code <= 0xFFFF else "\\U%08x" % code
