"""Flags of the commands that take options of the compiler, made from the metadata of the options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field
from typing import Annotated, Any, get_type_hints

import typer

from host.options import CompileOptions, settings_of
from host.options.setting import key_of, setting_of
from sdk.cli import completion
from sdk.cli.console import print_error, print_line
from sdk.cli.forms import FORMS, value_of
from sdk.cli.project import command_line, remark


def takes_settings(command: str, options: type[CompileOptions]) -> Callable[[Callable[..., None]], Any]:
    """Add the flags of the options to a command.

    The function gets their values as keywords, by the names of the fields, with the command line itself as
    `command`. In the help, the flags stand between the function's own positional and its own keyword-only
    parameters.

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
        context = inspect.Parameter("context", first[0].kind, annotation=typer.Context)
        parameters = [context, *first, *derived, *(one.replace(kind=first[0].kind) for one in last)]

        @functools.wraps(function)
        def run(context: typer.Context, **given: Any) -> None:
            settings = {option.name: value_of(option, given.pop(option.name)) for option in offered}
            # Here, since not every command goes on to what the options are for.
            options(**settings).check()
            if given_by_project := remark(context):
                # Rows for programs are alone on standard output.
                print_project = print_error if given.get("form", "table") != "table" else print_line
                print_project(f"project   {given_by_project}")
            function(**given, **settings, command=command_line(context))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _completed(option: Field[Any]) -> Callable[[str], list[str]] | None:
    """What a shell offers for the value of an option."""
    if option.name == "device":
        return completion.devices
    choices = setting_of(option).choices
    return (lambda incomplete: [one for one in choices if one.startswith(incomplete)]) if choices else None


def _parameter(option: Field[Any], kind: Any) -> inspect.Parameter:
    setting, flag = setting_of(option), f"--{key_of(option)}"
    default = option.default if option.default is not MISSING else None
    if setting.form:
        form = FORMS[setting.form]
        kind, default = form.kind, form.typed(default)
    declared = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    offer = typer.Option(
        declared,
        help=setting.text,
        metavar=setting.metavar or None,
        envvar=setting.environment or None,
        autocompletion=_completed(option),
        rich_help_panel=setting.group.capitalize(),
    )
    where = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(option.name, where, default=default, annotation=Annotated[kind, offer])
