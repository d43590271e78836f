"""Operations of a model file under the names that its author knows."""

from __future__ import annotations

import json
from dataclasses import dataclass

# How a variable of relax says which layer it belongs to.
_PREFIX = "layer:"
_CHARACTERS = 200
_MOST = 1 << 31


@dataclass(frozen=True, order=True)
class Layer:
    """One operation of a model file.

    Attributes:
        position: in the order of the file.
        name: of the node, or the path of its module.
        operator: what it is, in the words of its format.
        source: file and line of the program that it was exported from; "" where the file does not say.
    """

    position: int
    name: str
    operator: str
    source: str = ""

    @property
    def variable(self) -> str:
        """The name of a relax variable that carries it; long texts lose their ends."""
        texts = [text[:_CHARACTERS] for text in (self.name, self.operator, self.source)]
        return _PREFIX + json.dumps([self.position, *texts])


def layer_of(variable: str) -> Layer | None:
    """The layer that a variable's name carries; None where it carries none, or in another form than ours."""
    if not variable.startswith(_PREFIX) or len(variable) > 20 * _CHARACTERS:
        return None
    try:
        position, *texts = json.loads(variable[len(_PREFIX) :])
    except (ValueError, TypeError, RecursionError):
        return None
    fits = len(texts) == 3 and all(isinstance(text, str) and len(text) <= _CHARACTERS for text in texts)
    if not fits or type(position) is not int or not 0 <= position < _MOST:
        return None
    return Layer(position, *texts)
