"""Fields of a JSON object from elsewhere: every value is looked at before it is used."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable

_SHOWN = 60


class Fields:
    """Typed and bounded access; whatever is wrong raises the error that `fail` makes.

    Args:
        values: the object.
        fail: makes an error of a line that names the field.
    """

    def __init__(self, values: Mapping[str, Any], fail: Callable[[str], Exception]) -> None:
        self.values = values
        self._fail = fail

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def text(
        self, name: str, limit: int = LIMITS.wire.text_characters, standard: Optional[str] = None
    ) -> str:
        """Text of at most `limit` characters, without a NUL; `standard` where the field is absent or null."""
        if standard is not None and not self.has(name):
            return standard
        value = self._value(name)
        if not isinstance(value, str) or len(value) > limit or "\0" in value:
            raise self.wrong(name, "text of at most %d characters" % limit)
        return value

    def name(self, name: str) -> str:
        """A name: text that is not empty, and short."""
        value = self.text(name, LIMITS.wire.name_characters)
        if not value:
            raise self.wrong(name, "a name")
        return value

    def whole(self, name: str, least: int, most: int, standard: Optional[int] = None) -> int:
        """A whole number in a range; `standard` where the field is absent or null."""
        if standard is not None and not self.has(name):
            return standard
        value = self._value(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(name, "a whole number from %d to %d" % (least, most))
        return value

    def number(
        self,
        name: str,
        least: float = -math.inf,
        most: float = math.inf,
        standard: Optional[float] = None,
    ) -> float:
        """A finite number in a range; `standard` where the field is absent or null."""
        if standard is not None and not self.has(name):
            return standard
        value = self._value(name)
        if not is_number(value) or not least <= value <= most:
            wanted = "" if most == math.inf else " from %g to %g" % (least, most)
            raise self.wrong(name, "a number" + wanted)
        return float(value)

    def seconds(self, name: str, standard: Optional[float] = None) -> float:
        """A length of time, zero included."""
        return self.number(name, 0.0, float(LIMITS.wire.seconds), standard)

    def truth(self, name: str, standard: Optional[bool] = None) -> bool:
        """True or false; `standard` where the field is absent or null."""
        if standard is not None and not self.has(name):
            return standard
        value = self._value(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def items(self, name: str, limit: int = LIMITS.wire.items) -> List[Any]:
        """A list of at most `limit` entries, whatever they are."""
        value = self._value(name)
        if not isinstance(value, list) or len(value) > limit:
            raise self.wrong(name, "a list of at most %d entries" % limit)
        return value

    def texts(self, name: str, limit: int = LIMITS.wire.items) -> List[str]:
        """A list of at most `limit` texts, each of a bounded length; refuses anything else."""
        found = self.items(name, limit)
        if not all(isinstance(one, str) and len(one) <= LIMITS.wire.text_characters for one in found):
            raise self.wrong(name, "a list of texts")
        return list(found)

    def numbers(self, name: str, limit: int = LIMITS.wire.items) -> List[float]:
        """A list of finite numbers."""
        found = self.items(name, limit)
        if not all(is_number(one) for one in found):
            raise self.wrong(name, "a list of numbers")
        return [float(one) for one in found]

    def object(self, name: str, limit: int = LIMITS.wire.items) -> "Fields":
        """An object of at most `limit` fields."""
        value = self._value(name)
        if not isinstance(value, dict) or len(value) > limit:
            raise self.wrong(name, "an object of at most %d fields" % limit)
        return self._inner(name, value)

    def objects(self, name: str, limit: int = LIMITS.wire.items) -> "Iterator[Fields]":
        """The fields of each object of a list of at most `limit` objects; refuses anything else."""
        for place, one in enumerate(self.items(name, limit)):
            if not isinstance(one, dict):
                raise self.wrong(name, "a list of objects")
            yield self._inner("%s[%d]" % (name, place), one)

    def text_map(self, name: str, limit: int = LIMITS.wire.items) -> Dict[str, str]:
        """An object whose fields are texts."""
        inner = self.object(name, limit)
        return {key: inner.text(key) for key in inner.values}

    def number_map(self, name: str, limit: int = LIMITS.wire.items) -> Dict[str, float]:
        """An object whose fields are finite numbers."""
        inner = self.object(name, limit)
        return {key: inner.number(key) for key in inner.values}

    def error(self, text: str) -> Exception:
        """An error of the kind that wrong fields raise."""
        return self._fail(text)

    def wrong(self, name: str, wanted: str) -> Exception:
        """The error for a field that is not what it has to be."""
        found = "is missing"
        if name in self.values:
            found = "is %s" % _shown(self.values[name])
        return self._fail("%s %s; %s is expected" % (printable(name, _SHOWN), found, wanted))

    def _value(self, name: str) -> Any:
        return self.values.get(name)

    def _inner(self, name: str, values: Mapping[str, Any]) -> "Fields":
        return Fields(values, lambda text: self._fail("%s: %s" % (printable(name, _SHOWN), text)))


def _shown(value: object) -> str:
    # What is large is not written out: it may have been sent for that.
    if isinstance(value, (dict, list)):
        return "%s of %d" % ("a list" if isinstance(value, list) else "an object", len(value))
    return printable(repr(value[:_SHOWN] if isinstance(value, str) else value), _SHOWN)


def is_number(value: object) -> bool:
    """Whether a value is a finite number, and not true or false."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)
