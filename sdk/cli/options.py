"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from host.errors import UserError


@dataclass
class State:
    """What one invocation remembers.

    Attributes:
        verbose: show tracebacks.
    """

    verbose: bool = False


def _remember(context: typer.Context, value: bool) -> bool:
    state = context.find_root().obj
    if value and isinstance(state, State):
        state.verbose = True
    return value


Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show tracebacks.", callback=_remember, expose_value=True)
]
DeviceName = Annotated[str, typer.Option("--device", help="The device's name; sdk devices lists them.")]
Backend = Annotated[str, typer.Option(help="auto, tvm, onnxruntime or litert.")]
Trials = Annotated[int, typer.Option(help="Kernels to measure in all; 0 measures only the finished model.")]
Threads = Annotated[int, typer.Option(help="Threads for the model; 0 takes all cores of the device.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1,128", help="Shape of an input with open dimensions; may repeat."),
]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]


def parse_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """`NAME=1,128` to shapes by input name.

    Raises:
        UserError: a text is not of that form.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, separator, dimensions = text.rpartition("=")
        try:
            shape = tuple(int(part) for part in dimensions.split(","))
        except ValueError:
            shape = (0,)
        if not separator or not name or any(size <= 0 for size in shape):
            raise UserError(f"--shape {text}: write it as NAME=1,128, positive numbers with commas")
        if name in shapes:
            raise UserError(f"--shape {text}: input {name!r} was given a shape already")
        shapes[name] = shape
    return shapes
