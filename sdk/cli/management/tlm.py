"""`sdk tlm`: the language model that proposes programs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli.help import add_command, new_group
from sdk.cli.management.evaluate import evaluate
from sdk.cli.options import SEED_MOST, DeviceName, Records, Seed, Threads, Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from host.tlm.training import finetune as finetuning
    from research.pretraining.pretrain import Progress

# Steps or tasks between two lines of progress.
_LINE_EACH = 50
# Of what is counted.
_MOST = 10**9
_STEPS_EACH = 10


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("tlm", "Train the language model that proposes programs.")
    add_command(group, pretrain, "sdk tlm pretrain --out tlm-model --steps 20000")
    add_command(group, finetune, "sdk tlm finetune --device pi5")
    add_command(group, collect, "sdk tlm collect model.onnx --device pi5 --out programs.jsonl")
    add_command(group, evaluate, "sdk tlm evaluate --networks mobilenetv2 --budget 0,10")
    add_command(group, package, "sdk tlm package tlm-model")
    add_command(group, card, "sdk tlm card")
    app.add_typer(group)


def pretrain(
    out: Annotated[Path, typer.Option("--out", help="Folder of data, state and checkpoint.")],
    steps: Annotated[int, typer.Option("--steps", min=1, max=_MOST, help="Batches in all.")] = 20000,
    examples: Annotated[
        int, typer.Option("--examples", min=21, max=_MOST, help="Tasks to train on.")
    ] = 20000,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=SEED_MOST, help="Of data, weights and batches.")
    ] = 0,
    layers: Annotated[int, typer.Option("--layers", min=1, max=1000, help="Layers of the network.")] = 5,
    width: Annotated[
        int, typer.Option("--width", min=32, max=32768, help="Width of the network, 32 a head.")
    ] = 160,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=4096, help="Processes that make the examples.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="local|ray|ray://HEAD",
            help="Whose hosts make the examples and train, on a GPU if one has it: this machine if local.",
        ),
    ] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train on programs that nobody measured, judged by their estimates."""
    from host.errors import UserError
    from host.tlm.model.card import Size
    from research.pretraining.pretrain import pretrain as run
    from research.pretraining.teacher import Teacher
    from research.pretraining.training import PretrainOptions
    from sdk.cli.console import print_line

    if width % 32:
        raise UserError(f"--width {width}: a multiple of 32, for example 160")
    size = Size(layers=layers, heads=width // 32, width=width)
    options = PretrainOptions(out, steps, examples, seed, resume, size=size, jobs=jobs, engine=engine)
    card = run(options, Teacher(), _show)
    print_line(f"model     {out}, withheld loss {card.training['withheld_loss']}")


def finetune(
    device: DeviceName = "local",
    records: Records = "",
    steps: Annotated[
        int,
        typer.Option("--steps", min=0, max=_MOST, help="Of each training; 0 follows the number of tasks."),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the checkpoint; where deployments look if not given."),
    ] = None,
    threads: Threads = 0,
    seed: Seed = 0,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="local|ray|ray://HEAD",
            help="Whose hosts train, on a GPU if one has it: this machine if local.",
        ),
    ] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it was interrupted.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train on what was measured on a device; the model is used only if it beats the old one there."""
    from sdk.cli.console import print_line
    from sdk.management.finetuning import Request, finetune_device

    request = Request(device, records, threads, steps, out, resume, seed, engine)
    result = finetune_device(request, _show_step, print_line)
    verdict = "used from now on" if result.accepted else "the old one stays"
    print_line(f"tasks     {result.learned}, of which {result.withheld} judged, each withheld once")
    print_line(
        f"error     {result.before:.3f} before, {result.after:.3f} after, of withheld records: {verdict}"
    )
    print_line(f"gate      {result.why}")
    print_line(f"forgotten {result.forgotten:+.3f} loss on programs of other boards")
    print_line(f"model     {result.checkpoint}")


def collect(
    models: Annotated[list[Path], typer.Argument(help="Model files whose programs are measured.")],
    out: Annotated[Path, typer.Option("--out", help="File that grows by a line a program.")],
    device: DeviceName = "local",
    threads: Annotated[
        int, typer.Option("--threads", min=0, max=4096, help="Of the programs; 0 for all.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.0, max=1e6, help="After which no further task is begun.")
    ] = 60.0,
    sweeps: Annotated[
        int, typer.Option("--sweeps", min=1, max=_MOST, help="Times 24 programs of each task.")
    ] = 4,
    restrict: Annotated[
        str, typer.Option("--restrict", help="Part of the processor that is used, for example avx2.")
    ] = "",
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="local|ray|ray://HEAD",
            help="Whose hosts build the programs: this machine if local.",
        ),
    ] = "local",
    verbose: Verbose = False,
) -> None:
    """Measure many programs of each kernel, for research; the same command goes on with a file."""
    from research.collection.run import CollectOptions
    from research.collection.run import collect as run
    from sdk.cli.console import print_line

    options = CollectOptions(tuple(models), out, device, engine, threads, restrict, sweeps, minutes)
    measured = run(options, print_line)
    print_line(f"measured  {measured} programs, in {out}")


def package(
    folder: Annotated[Path, typer.Argument(help="Folder of sdk tlm pretrain.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; that of this package if not given.")
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", help="File of sdk tlm evaluate --json, for the card.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Make a pre-trained model the one that is shipped: weights, card, and a sample of its data."""
    from host.tlm.model.checkpoints import SHIPPED
    from research.pretraining.package import package as run
    from sdk.cli.console import print_line

    target = out or SHIPPED
    card = run(folder, target, evaluation)
    size = sum(path.stat().st_size for path in target.iterdir())
    print_line(f"model     {target}, {size / 1e6:.1f} MB, weights {card.weights[:16]}")


def card(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a model; the shipped one if not given.")
    ] = None,
    form: Form = "table",
    verbose: Verbose = False,
) -> None:
    """Show what a model is: its network, its vocabulary, and how it was trained."""
    from host.tlm.language.vocabulary import Vocabulary
    from host.tlm.model.card import extended, read_card
    from host.tlm.model.checkpoints import shipped
    from host.tlm.model.rule_versions import known_versions
    from sdk.cli.console import print_line

    place, vocabulary = folder or shipped(), Vocabulary()
    found = read_card(place)
    size = found.size
    rows = [
        ("model", f"{place}, weights {found.weights[:16]}"),
        *([("base", found.base[:16])] if found.base else []),
        (
            "network",
            f"{size.layers} layers, {size.heads} heads, width {size.width}, {size.positions} positions",
        ),
        ("tokens", f"{found.tokens} of {len(vocabulary)}, vocabulary {found.vocabulary}"),
        ("untrained", " ".join(extended(found, vocabulary, place).untrained) or "none"),
        ("outdated", " ".join(found.outdated(known_versions())) or "none"),
        ("training", ", ".join(f"{name} {value}" for name, value in found.training.items())),
    ]

    def show() -> None:
        for name, text in rows:
            print_line(f"{name:<9} {text}")

    write_list(form, show, ("name", "value"), rows)


def _show_step(progress: finetuning.Progress) -> None:
    from sdk.cli.console import print_line

    if progress.done % _STEPS_EACH and progress.done != progress.total:
        return
    print_line(f"training {progress.done} of {progress.total}, loss {progress.loss:.3f}")
    sys.stdout.flush()


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
