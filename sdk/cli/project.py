"""`edgetlm.toml`: the options of a command with a model that its command line does not give.

A key is the name of an option without its dashes, and `model`; the gates stand in a table of their own. The
file is that of the working folder, or of the nearest folder above that has one.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import typer

from device_agent.contract.text import printable
from host.errors import UserError
from host.options import DeployOptions
from host.options.setting import key_of, setting_of
from host.settings_file import read_table
from sdk.cli.forms import FORMS, value_of

NAME, CLUSTER = "edgetlm.toml", "cluster"
_GATES = "gates"
# What belongs to the model of the file, and not to another one that a command line names.
_OF_THE_MODEL = ("peers", "model", _GATES)

_PASSWORD = re.compile(r"(://[^:/@\s]*):\S*@")
_SECRET_OPTION = re.compile(r"(?i)([?&][^=&]*(?:passw|pwd|token|secret)[^=&]*=)[^&\s]*")


@dataclass(frozen=True)
class Project:
    """The content of a project file.

    Attributes:
        path: of the file, from the working folder.
        values: by the name of the field, in the form in which they could be typed.
    """

    path: Path
    values: Mapping[str, Any]

    def default(self, name: str, model: Any) -> Any:
        """The value of a parameter that was not typed; None where the file has none.

        Args:
            name: of the parameter.
            model: the model file of the command; None if it is not known yet.
        """
        own = self.values.get("model")
        another = own is not None and model is not None and Path(model).resolve() != Path(own).resolve()
        if another and any(one.name == name and setting_of(one).group in _OF_THE_MODEL for one in _keys()):
            return None
        return self.values.get(name)


class ProjectContext(typer.Context):
    """The context of a command whose defaults a project file may give."""

    @functools.cached_property
    def project(self) -> Project | None:
        """The project of the working folder; None if there is none."""
        return find_project()

    def lookup_default(self, name: str, call: bool = True) -> Any:
        """The value of a parameter that was not typed; help and completion do not read the file."""
        if self.resilient_parsing or self.project is None:
            return None
        return self.project.default(name, self.params.get("model"))

    def taken(self) -> dict[str, Any]:
        """The values that the project gave, by the names of the fields."""
        found = self.project.values if self.project is not None else {}
        return {name: value for name, value in found.items() if self._is_of_project(name)}

    def _is_of_project(self, name: str) -> bool:
        source = self.get_parameter_source(name)
        return source is not None and source.name == "DEFAULT_MAP"


def find_project() -> Project | None:
    """The project of the working folder; None if neither the folder nor one above it has a file.

    Raises:
        UserError: the file cannot be used; the message names the file, the key, and what the key takes.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / NAME
        if _is_file(path):
            return _read(Path(os.path.relpath(path)), strange=folder != here)
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        # Of a folder above that this user may not look into, nothing can be meant for them.
        return False


def command_line(context: typer.Context | None = None) -> str:
    """The command as it can be typed again, for records and reports: with what the project file gave.

    Args:
        context: of the command; None for the words that were typed alone.

    Returns:
        One line without the secrets of a URL.
    """
    added = _words(context.taken()) if isinstance(context, ProjectContext) else ()
    words = [
        _SECRET_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", word)) for word in (*sys.argv[1:], *added)
    ]
    return shlex.join([Path(sys.argv[0]).name, *words])


def remark(context: typer.Context) -> str:
    """A line on the options that the project file gave; "" if it gave none."""
    taken = context.taken() if isinstance(context, ProjectContext) else {}
    if not taken:
        return ""
    assert isinstance(context, ProjectContext) and context.project is not None
    return f"{context.project.path} gives {', '.join(key_of(one) for one in _keys() if one.name in taken)}"


def _words(taken: Mapping[str, Any]) -> Iterator[str]:
    for option in _keys():
        if option.name not in taken:
            continue
        value, flag = taken[option.name], f"--{key_of(option)}"
        if option.name == "model":
            yield str(value)
        elif isinstance(value, bool):
            yield flag if value else f"--no-{flag[2:]}"
        else:
            for one in value if isinstance(value, list) else [value]:
                yield from (flag, str(one))


@functools.cache
def _keys() -> tuple[Field[Any], ...]:
    """The fields that a file may give."""
    return tuple(one for one in fields(DeployOptions) if one.name == "model" or setting_of(one).commands)


def _read(path: Path, strange: bool) -> Project:
    """Read and check a file.

    Args:
        path: of the file.
        strange: it is not in the working folder, so the user has not shown that they trust it.
    """
    try:
        owner = path.stat().st_uid
        table = read_table(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({printable(error, 200)}); correct it or remove it"
        ) from error
    if strange and owner not in (0, os.geteuid()):
        raise UserError(
            f"{path} belongs to another user (uid {owner}): go to its folder to use it, or remove it"
        )
    # Of `sdk cluster`, which reads it.
    table.pop(CLUSTER, None)
    gates = table.pop(_GATES, {})
    if not isinstance(gates, dict):
        raise UserError(f"{path}: {_GATES}: write it as a table: [{_GATES}] and its keys below")
    plain = {key_of(one): one for one in _keys() if setting_of(one).group != _GATES}
    limits = {key_of(one): one for one in _keys() if setting_of(one).group == _GATES}
    typed: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for known, given, where in ((plain, table, ""), (limits, gates, f"[{_GATES}] ")):
        for key, value in given.items():
            if key not in known:
                raise UserError(f"{path}: {where}{_unknown(key, known, limits if known is plain else plain)}")
            name = known[key].name
            try:
                typed[name] = _typed(known[key], value, path.parent)
                values[name] = value_of(known[key], typed[name])
            except (UserError, ValueError) as error:
                raise UserError(f"{path}: {where}{key}: {error}") from error
    try:
        DeployOptions(**values).check()
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return Project(path, typed)


def _unknown(key: str, known: Mapping[str, Any], elsewhere: Mapping[str, Any]) -> str:
    if key in elsewhere:
        place = (
            f"in the table [{_GATES}]"
            if setting_of(elsewhere[key]).group == _GATES
            else "at the top of the file"
        )
        return f"{key} belongs {place}"
    near = difflib.get_close_matches(key, known, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ":"
    return f"no key '{printable(key, 40)}'{hint} use {', '.join(sorted(known))}"


def _typed(option: Field[Any], value: Any, folder: Path) -> Any:
    """A value of a file as it could be typed, with paths from the working folder.

    Raises:
        ValueError: it is of another type; says of which.
    """
    setting = setting_of(option)
    kind = FORMS[setting.form].kind if setting.form else _hints()[option.name]
    if kind == list[str] | None:
        texts = _checked(
            value if isinstance(value, list) else [value], _all_texts, "a text or a list of texts"
        )
        return [_named_path(text, folder) for text in texts] if setting.path else texts
    if kind is bool:
        return _checked(value, lambda one: isinstance(one, bool), "true or false")
    if kind is int:
        return _checked(value, lambda one: _is_number(one) and isinstance(one, int), "a whole number")
    if kind in (float, float | None):
        return _checked(value, _is_number, "a number")
    if setting.form in ("lengths", "names") and isinstance(value, list):
        return ",".join(str(_checked(one, _is_text, "a list of texts or numbers")) for one in value)
    if setting.path:
        return _located(_checked(value, lambda one: isinstance(one, str), "a text"), folder)
    return str(_checked(value, _is_text, "a text"))


def _checked(value: Any, is_right: Callable[[Any], bool], wanted: str) -> Any:
    if not is_right(value):
        raise ValueError(f"give {wanted}, not {printable(repr(value), 60)}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    # What looks like a number to TOML may be text to us: the 11 of a CUDA version, the bytes of a cap.
    return isinstance(value, str) or _is_number(value)


def _all_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _named_path(text: str, folder: Path) -> str:
    name, separator, path = text.partition("=")
    return f"{name}={_located(path, folder)}" if separator and path else text


def _located(text: str, folder: Path) -> str:
    """A path from the working folder; a URL stays what it is."""
    return text if "://" in text else os.path.normpath(folder / text)


@functools.cache
def _hints() -> dict[str, Any]:
    return get_type_hints(DeployOptions)
