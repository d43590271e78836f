"""How the fields of options are offered: by flags of command lines, and by keys of a project file."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any

# The order of the groups in which a command lists its options.
GROUPS = ("device", "program", "peers", "objective", "tuning", "model", "gates")
# The commands that offer an option which names no commands.
EVERYWHERE = ("compile", "tune", "deploy")


@dataclass(frozen=True)
class Setting:
    """How command lines and a project file offer a field of the options.

    Attributes:
        text: the help; the documentation of the field too.
        group: one of `GROUPS`.
        commands: that offer it; () for what only Python callers set.
        flag: without the leading dashes; "" is the field's name.
        metavar: what stands for the value; "" is the type's name.
        form: how the text becomes the value, by name of a form of `sdk.cli.forms`; "" takes it as it is.
        environment: variable that gives the value where no flag does.
        choices: the only values; () for any.
        least, most: of a number; every number has them, so that none goes on to where it is a crash.
        path: the value is a path, or NAME=PATH in a list: in a project file it begins at the file's folder.
    """

    text: str
    group: str = "model"
    commands: tuple[str, ...] = EVERYWHERE
    flag: str = ""
    metavar: str = ""
    form: str = ""
    environment: str = ""
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float | None = None
    path: bool = False


def declared(default: Any, text: str, group: str = "model", **how: Any) -> Any:
    """A field of the options with how it is offered.

    Args:
        default: its value, or what makes it.
        text: see `Setting`, as the others.
        group: see `Setting`.
        how: the other attributes of `Setting`.
    """
    setting = {"setting": Setting(text, group, **how)}
    if callable(default):
        return field(default_factory=default, metadata=setting)
    return field(default=default, metadata=setting)


def setting_of(option: Field[Any]) -> Setting:
    """How a field of the options is offered."""
    setting: Setting = option.metadata["setting"]
    return setting


def key_of(option: Field[Any]) -> str:
    """The name of a field in a project file; its flag is the same with two dashes before it."""
    return setting_of(option).flag or option.name.replace("_", "-")
