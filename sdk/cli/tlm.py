"""`sdk tlm`: the language model that proposes programs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli.evaluate import evaluate
from sdk.cli.options import Verbose

if TYPE_CHECKING:
    from host.tlm.pretrain import Progress

# Steps or tasks between two lines of progress.
_LINE_EACH = 50


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = typer.Typer(help="Train the language model that proposes programs.", no_args_is_help=True)
    group.command()(pretrain)
    group.command()(evaluate)
    app.add_typer(group, name="tlm")


def pretrain(
    out: Annotated[Path, typer.Option("--out", help="Folder of data, state and checkpoint.")],
    steps: Annotated[int, typer.Option("--steps", min=1, help="Batches in all.")] = 20000,
    examples: Annotated[int, typer.Option("--examples", min=21, help="Tasks to train on.")] = 20000,
    seed: Annotated[int, typer.Option("--seed", help="Of data, weights and batches.")] = 0,
    layers: Annotated[int, typer.Option("--layers", min=1, help="Layers of the network.")] = 5,
    width: Annotated[int, typer.Option("--width", min=32, help="Width of the network, 32 a head.")] = 160,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that make the examples.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train on programs that nobody measured, with the constructor as the teacher."""
    from host.errors import UserError
    from host.gensor import Gensor
    from host.tlm.card import Size
    from host.tlm.pretrain import PretrainOptions
    from host.tlm.pretrain import pretrain as run
    from sdk.cli.console import print_line

    if width % 32:
        raise UserError(f"--width {width}: a multiple of 32, for example 160")
    size = Size(layers=layers, heads=width // 32, width=width)
    options = PretrainOptions(out, steps, examples, seed, resume, size=size, jobs=jobs)
    card = run(options, Gensor(), _show)
    print_line(f"model     {out}, withheld loss {card.training['withheld_loss']}")


def _show(progress: Progress) -> None:
    from sdk.cli.console import print_line

    if progress.done % _LINE_EACH and progress.done != progress.total:
        return
    text = f"{progress.stage} {progress.done} of {progress.total}"
    if not math.isnan(progress.loss):
        text += f", loss {progress.loss:.3f}"
    if not math.isnan(progress.withheld_loss):
        text += f", withheld {progress.withheld_loss:.3f}"
    print_line(text)
    sys.stdout.flush()  # in a log too, as it happens
