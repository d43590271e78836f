"""`sdk tlm evaluate`: proposed programs beside a search that measured hundreds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sdk.cli.options import SEED_MOST, Verbose

# Where a working copy of this project keeps the baselines that it was measured against.
_BASELINES = Path("research") / "baselines"


def evaluate(
    networks: Annotated[
        str, typer.Option("--networks", help="Names, comma-separated; all that there are by default.")
    ] = "",
    budget: Annotated[
        str, typer.Option("--budget", help="Measurements a task, comma-separated; 0 is the first proposal.")
    ] = "0,1,10,32",
    methods: Annotated[
        str, typer.Option("--methods", help="Of tlm, gensor, tree, random.")
    ] = "tlm,gensor,tree,random",
    baselines: Annotated[Path, typer.Option("--baselines", help="Folder of the baselines.")] = _BASELINES,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Folder of a model; the shipped one by default.")
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=10**6, help="Interleaved rounds of finalists.")
    ] = 12,
    seed: Annotated[int, typer.Option("--seed", min=0, max=SEED_MOST, help="Of the proposers.")] = 0,
    finetune: Annotated[
        int,
        typer.Option(
            "--finetune", min=0, max=10**9, help="Batches of each training between measurements; 0 for none."
        ),
    ] = 0,
    restrict: Annotated[
        str, typer.Option("--restrict", help="Part of the processor that is used, for example avx2.")
    ] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the figures go.")] = None,
    verbose: Verbose = False,
) -> None:
    """Compare proposed programs with a search's, on networks that nothing was trained on."""
    from host.compile.device_profile import profile_of
    from host.deploy import versions
    from host.transport import connect
    from research.evaluation.bench import MeasurePlan, restricted
    from research.evaluation.evaluate import EvaluateOptions, load_baselines
    from research.evaluation.evaluate import evaluate as run
    from sdk.cli.console import print_line

    options = EvaluateOptions(
        baselines=baselines,
        checkpoint=_checkpoint(checkpoint, methods),
        networks=tuple(filter(None, networks.split(","))),
        budgets=_budgets(budget),
        methods=_methods(methods),
        plan=MeasurePlan(rounds=rounds),
        seed=seed,
        finetune=finetune,
    )
    threads = load_baselines(options)[0].threads
    with connect("local") as device:
        description = device.describe()
        profile = restricted(profile_of(device, threads, print_line), description, restrict)
        machine = {"cpu": description.cpu_name, "cores": description.cores, "versions": versions()}

        def keep(figures: dict[str, Any]) -> None:
            # After every network: an evaluation of several takes long.
            if json_file is not None:
                json_file.write_text(json.dumps({**figures, "machine": machine}, indent=1) + "\n")

        figures = run(device, profile, options, _print, keep)
    for name, entry in figures["networks"].items():
        for line in _lines(name, entry):
            print_line(line)


def _print(text: str) -> None:
    from sdk.cli.console import print_line

    print_line(text)
    sys.stdout.flush()  # in a log too, as it happens


def _checkpoint(given: Path | None, methods: str) -> Path:
    if given is not None or "tlm" not in methods.split(","):
        return given or Path()
    from host.tlm.model.checkpoints import shipped

    return shipped()


def _budgets(text: str) -> tuple[int, ...]:
    from host.errors import UserError

    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--budget {text}: numbers of measurements, for example 0,1,10,32")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _methods(text: str) -> tuple[str, ...]:
    from host.errors import UserError
    from research.evaluation.evaluate import METHODS

    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise UserError(f"--methods {text}: no {unknown[0]!r}, there are {', '.join(METHODS)}")
    return names


def _lines(name: str, entry: dict[str, Any]) -> list[str]:
    if "error" in entry:
        return [f"{name}: {entry['error']}"]
    lines = []
    for budget, ratios in entry["budgets"].items():
        cells = [f"{method} {'-' if value is None else f'{value:.3f}'}" for method, value in ratios.items()]
        lines.append(f"{name:<14} {budget:>3} measured: {'  '.join(cells)}")
    return lines
