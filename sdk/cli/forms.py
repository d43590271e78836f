"""How the text of a command line or a project file becomes the value of an option."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.errors import UserError
from host.options.compile import Number
from host.options.setting import key_of, setting_of


def parse_shapes(texts: list[str] | None) -> dict[str, tuple[int | tuple[int, int], ...]]:
    """`NAME=1,128` and `NAME=1..512` to sizes and ranges by name.

    Raises:
        UserError: a text is not of that form.
    """
    shapes: dict[str, tuple[int | tuple[int, int], ...]] = {}
    for text in texts or []:
        name, separator, dimensions = text.rpartition("=")
        if not separator or not name:
            raise _shape_error(text)
        shape = tuple(_size(text, part) for part in dimensions.split(","))
        if name in shapes:
            raise UserError(f"--shape {text}: {name!r} was given a shape already")
        shapes[name] = shape
    return shapes


def parse_values(texts: list[str] | None) -> dict[str, tuple[Number, ...]]:
    """`NAME=640,480`, `NAME=0.5` and `NAME=true` to numbers by name.

    Raises:
        UserError: a text is not of that form.
    """
    values: dict[str, tuple[Number, ...]] = {}
    for text in texts or []:
        name, separator, numbers = text.rpartition("=")
        if not separator or not name:
            raise _value_error(text)
        if name in values:
            raise UserError(f"--value {printable(text, 80)}: {printable(name, 40)!r} was given already")
        values[name] = tuple(_number(text, part.strip()) for part in numbers.split(","))
    return values


def _number(text: str, part: str) -> Number:
    if part in ("true", "false"):
        return part == "true"
    try:
        return int(part) if re.fullmatch("[+-]?[0-9]{1,20}", part) else float(part)
    except ValueError:
        raise _value_error(text) from None


def _value_error(text: str) -> UserError:
    return UserError(
        f"--value {printable(text, 80)}: write it as INPUT=640,480, numbers (or true and false) with commas"
    )


def parse_names(text: str) -> tuple[str, ...]:
    """`15W, MAXN` to names, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_peer_files(texts: list[str] | None, flag: str) -> dict[str, Path]:
    """`ncnn=FOLDER` to paths by engine.

    Args:
        texts: as typed.
        flag: that they were given with.

    Raises:
        UserError: not of that form, or no such file.
    """
    files: dict[str, Path] = {}
    for text in texts or []:
        engine, separator, path = text.partition("=")
        if not separator or not engine or not path:
            raise UserError(f"{flag} {text}: write it as ENGINE=PATH")
        if not Path(path).exists():
            raise UserError(f"{flag} {text}: there is no {path}")
        files[engine] = Path(path)
    return files


def parse_seconds(text: str, option: str = "--budget") -> float:
    """`3m` in seconds; 0 for "".

    Args:
        text: as typed.
        option: that it was given with.

    Raises:
        UserError: not of that form.
    """
    if not text:
        return 0.0
    from host.tuning.budget import parse_budget

    return parse_budget(text, option)


def parse_bytes(text: str, option: str) -> int:
    """`64M` in bytes; 0 for "". K, M and G are powers of 1024.

    Raises:
        UserError: not of that form, or nothing.
    """
    if not text:
        return 0
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMG]?)", text.strip().upper())
    size = int(float(found[1]) * 1024 ** " KMG".index(found[2] or " ")) if found else 0
    if size <= 0:
        raise UserError(f"{option} {printable(text, 40)}: give bytes above 0, as in {option} 64M or 1G")
    return size


def parse_lengths(text: str) -> tuple[int, ...]:
    """`16,128` to numbers, in order and each once.

    Raises:
        UserError: not of that form.
    """
    if not text:
        return ()
    try:
        lengths = sorted({int(part) for part in text.split(",")})
    except ValueError:
        lengths = [0]
    if lengths[0] <= 0:
        raise UserError(f"--lengths {text}: write it as 16,128,512, positive numbers with commas")
    return tuple(lengths)


def _size(text: str, part: str) -> int | tuple[int, int]:
    low, dots, high = part.partition("..")
    try:
        sizes = (int(low), int(high if dots else low))
    except ValueError:
        raise _shape_error(text) from None
    if min(sizes) <= 0:
        raise _shape_error(text)
    if sizes[0] > sizes[1]:
        raise UserError(f"--shape {text}: a range goes from the lesser to the greater size, as in 1..512")
    return sizes if dots else sizes[0]


def _shape_error(text: str) -> UserError:
    return UserError(f"--shape {text}: write it as NAME=1,128 or NAME=1..512, positive numbers with commas")


@dataclass(frozen=True)
class Form:
    """How the text of a command line or a project file becomes the value of a field.

    Attributes:
        kind: the type that the command line has.
        value: the field's value, of what was typed and of the flag that it was typed with.
        typed: what stands for the default.
    """

    kind: Any
    value: Callable[[Any, str], Any]
    typed: Callable[[Any], Any]


FORMS = {
    "duration": Form(str, parse_seconds, lambda seconds: f"{seconds / 60:g}m" if seconds else ""),
    "bytes": Form(str, parse_bytes, lambda size: str(size) if size else ""),
    "lengths": Form(str, lambda text, flag: parse_lengths(text), lambda default: ""),
    "names": Form(str, lambda text, flag: parse_names(text), lambda default: ""),
    "repeated": Form(
        list[str] | None,
        lambda texts, flag: parse_names(",".join(texts)) if texts else None,
        lambda default: None,
    ),
    "text": Form(str, lambda text, flag: text, lambda default: default),
    "shapes": Form(list[str] | None, lambda texts, flag: parse_shapes(texts), lambda default: None),
    "values": Form(list[str] | None, lambda texts, flag: parse_values(texts), lambda default: None),
    "peer_files": Form(list[str] | None, parse_peer_files, lambda default: None),
}


def value_of(option: Field[Any], typed: Any) -> Any:
    """The value of a field, of what was typed for it.

    Raises:
        UserError: it is not of the field's form.
    """
    form = setting_of(option).form
    return FORMS[form].value(typed, f"--{key_of(option)}") if form else typed
