"""What somebody meant who typed a word that the command line does not have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from typer.exceptions import TyperException

from host.errors import UserError
from sdk.cli.project import NAME, ProjectContext

# Words of other tools, and what is typed here. Of several answers, the first that the command has.
_OPTIONS = {
    "--target": ("--device",),
    "--board": ("--device", "--target"),
    "--device": ("--target",),
    "--host": ("--device",),
    "--precision": ("--dtype",),
    "--fp16": ("--dtype fp16",),
    "--half": ("--dtype fp16",),
    "--bf16": ("--dtype bf16",),
    "--int8": ("--quantize int8",),
    "--int4": ("--quantize int4",),
    "--quantise": ("--quantize",),
    "--input-shape": ("--shape",),
    "--input-shapes": ("--shape",),
    "--batch": ("--shape batch=1",),
    "--batch-size": ("--shape batch=1",),
    "--num-threads": ("--threads",),
    "--cores": ("--threads",),
    "--save": ("--output", "--bundle"),
    "--out": ("--output", "--bundle"),
    "--output": ("--bundle", "--report"),
    "--html": ("--report",),
    "--iterations": ("--trials",),
    "--time": ("--budget",),
    "--timeout": ("--budget",),
    "--prompt": ("--text",),
    "--inputs": ("--input",),
}
# The library acts on these options before it reads the next word.
_COMPLETION = ("--install-completion", "--show-completion")
_COMMANDS = {
    "sdk": {
        "add": "devices add",
        "bench": "profile",
        "benchmark": "profile",
        "build": "compile",
        "check": "env",
        "convert": "compile",
        "doctor": "devices doctor",
        "emulate": "devices emulate",
        "export": "compile",
        "infer": "run",
        "install": "deploy",
        "list": "bundles",
        "ls": "bundles",
        "measure": "profile",
        "optimize": "tune",
        "predict": "run",
        "quantize": "deploy MODEL --quantize int8 --calibration DIR",
        "train": "tlm pretrain",
    },
    "sdk devices": {
        "check": "doctor",
        "ls": "list",
        "rm": "remove",
        "show": "doctor",
        "update": "install-agent",
    },
    "sdk tlm": {"train": "pretrain"},
}


def as_typed(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `help COMMAND` and `version` as options, which they are elsewhere.

    Raises:
        UserError: a shell is named to an option that goes by the shell that it is typed in.
    """
    if len(words) > 1 and words[0] in _COMPLETION and not words[1].startswith("-"):
        raise UserError(
            f"{words[0]} takes no name of a shell: it is for the shell that it is typed in. Start that "
            f"shell, and type sdk {words[0]} there"
        )
    if words and words[0] == "help":
        return [*words[1:], "--help"]
    return ["--version"] if list(words) == ["version"] else list(words)


def correction(error: TyperException, words: Sequence[str], path: str) -> str:
    """What to type in place of a command line that was refused.

    Args:
        error: with which it was refused.
        words: of the command line.
        path: the command, as `sdk devices add`.

    Returns:
        What follows the error; "" where nothing is known.
    """
    # `Path.is_file` raises where a word is too long for the name of a file.
    files = (word for word in words if word.startswith("-") and os.path.isfile(word))  # noqa: PTH113
    if found := next(files, ""):
        return f": for the file of this name write ./{found}"
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", "")
    if option and not getattr(error, "message", "").startswith("Option"):
        meant = _option(str(option), context)
        return f": write {meant}" if meant else ""
    parameter = getattr(getattr(error, "param", None), "name", "")
    if isinstance(context, ProjectContext) and parameter == "model":
        return f" Give a model file, or name one in {NAME}"
    if context is not None and hasattr(context.command, "commands"):
        meant = _COMMANDS.get(path, {}).get(_first_unknown(words, path), "")
        return f" Write {path} {meant}" if meant else ""
    if "extra argument" in str(error) and context is not None:
        return f": {_taken(context)}"
    return ""


def _option(option: str, context: Any) -> str:
    known = {} if context is None else {name for one in context.command.params for name in one.opts}
    return next((one for one in _OPTIONS.get(option, ()) if one.partition(" ")[0] in known), "")


def _first_unknown(words: Sequence[str], path: str) -> str:
    rest = words[len(path.split()) - 1 :]
    return rest[0] if rest else ""


def _taken(context: Any) -> str:
    """The arguments of a command in words, and how everything else is given."""
    names = [one.name.upper() for one in context.command.params if one.param_type_name == "argument"]
    options = [name for one in context.command.params for name in one.opts if name == "--device"]
    what = f"takes {' '.join(names)} alone" if names else "takes options alone"
    return f"{context.command_path} {what}" + (", and a device as --device NAME" if options else "")
