"""Flags of the commands that take options of the compiler, made from what the options say of themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass
from typing import Annotated, Any, get_type_hints

import typer

from host.options import BACKENDS, DTYPES, OBJECTIVES, PROCESSORS, CompileOptions, setting_of, settings_of
from sdk.cli import completion
from sdk.cli.options import (
    parse_bytes,
    parse_lengths,
    parse_names,
    parse_peer_files,
    parse_seconds,
    parse_shapes,
)

# What a shell offers for the value of an option.
_COMPLETED: dict[str, Callable[[str], list[str]]] = {
    "device": completion.devices,
    "backend": lambda incomplete: [one for one in ("auto", *BACKENDS) if one.startswith(incomplete)],
    "dtype": lambda incomplete: [one for one in DTYPES if one.startswith(incomplete)],
    "objective": lambda incomplete: [one for one in OBJECTIVES if one.startswith(incomplete)],
    "processor": lambda incomplete: [one for one in PROCESSORS if one.startswith(incomplete)],
}


@dataclass(frozen=True)
class _Form:
    """How text becomes the value of a field.

    Attributes:
        kind: the type that the command line has.
        value: the field's value, of what was typed and of the flag that it was typed with.
        typed: what stands for the default.
    """

    kind: Any
    value: Callable[[Any, str], Any]
    typed: Callable[[Any], Any]


_FORMS = {
    "duration": _Form(str, parse_seconds, lambda seconds: f"{seconds / 60:g}m" if seconds else ""),
    "bytes": _Form(str, parse_bytes, lambda size: str(size) if size else ""),
    "lengths": _Form(str, lambda text, flag: parse_lengths(text), lambda default: ""),
    "names": _Form(str, lambda text, flag: parse_names(text), lambda default: ""),
    "repeated": _Form(
        list[str] | None, lambda texts, flag: tuple(texts) if texts else None, lambda default: None
    ),
    "text": _Form(str, lambda text, flag: text, lambda default: default),
    "shapes": _Form(list[str] | None, lambda texts, flag: parse_shapes(texts), lambda default: None),
    "peer_files": _Form(list[str] | None, lambda texts, flag: parse_peer_files(texts), lambda default: None),
}


def takes_settings(command: str, options: type[CompileOptions]) -> Callable[[Callable[..., None]], Any]:
    """Give a command the flags of the options that it offers.

    The function gets their values as keywords, by the names of the fields. In the help, the flags stand
    between the function's own positional and its own keyword-only parameters.

    Args:
        command: name of the command, as the options' settings have it.
        options: whose fields they are.
    """
    offered = settings_of(options, command)
    hints = get_type_hints(options)

    def decorate(function: Callable[..., None]) -> Any:
        own = list(inspect.signature(function, eval_str=True).parameters.values())
        first = [one for one in own if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        last = [one for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY]
        derived = [_parameter(option, hints[option.name]) for option in offered]
        parameters = [*first, *derived, *(one.replace(kind=first[0].kind) for one in last)]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            settings = {option.name: _value(option, given.pop(option.name)) for option in offered}
            function(**given, **settings)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _flag(option: Field[Any]) -> str:
    return f"--{setting_of(option).flag or option.name.replace('_', '-')}"


def _parameter(option: Field[Any], kind: Any) -> inspect.Parameter:
    setting, flag = setting_of(option), _flag(option)
    default = option.default if option.default is not MISSING else None
    if setting.form:
        form = _FORMS[setting.form]
        kind, default = form.kind, form.typed(default)
    declared = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    offer = typer.Option(
        declared,
        help=setting.text,
        metavar=setting.metavar or None,
        envvar=setting.environment or None,
        autocompletion=_COMPLETED.get(option.name),
        rich_help_panel=setting.group.capitalize(),
    )
    where = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(option.name, where, default=default, annotation=Annotated[kind, offer])


def _value(option: Field[Any], typed: Any) -> Any:
    setting = setting_of(option)
    return _FORMS[setting.form].value(typed, _flag(option)) if setting.form else typed
