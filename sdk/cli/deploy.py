"""`sdk deploy`: a model file in, a verified and measured bundle running on the device."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sdk.cli.options import (
    Backend,
    Budget,
    DeviceNames,
    Dtype,
    JsonFile,
    Lengths,
    Objective,
    PeerFiles,
    Peers,
    PowerCap,
    PowerModes,
    Processor,
    Reconnect,
    Records,
    Seed,
    Shapes,
    Threads,
    Train,
    Trials,
    Verbose,
    Wait,
    parse_lengths,
    parse_names,
    parse_peer_files,
    parse_seconds,
    parse_shapes,
)

_PASSWORD = re.compile(r"(://[^:/@\s]*):\S*@")
_SECRET_OPTION = re.compile(r"(?i)([?&][^=&]*(?:passw|pwd|token|secret)[^=&]*=)[^&\s]*")


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(deploy)


def command_line() -> str:
    """The command as the user typed it, without the secrets of a URL: records and reports keep it."""
    words = [_SECRET_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", word)) for word in sys.argv[1:]]
    return shlex.join([Path(sys.argv[0]).name, *words])


def deploy(
    model: Annotated[Path, typer.Argument(help="ONNX, .pt2 or TFLite file.")],
    device: DeviceNames = "local",
    backend: Backend = "auto",
    processor: Processor = "auto",
    dtype: Dtype = "fp32",
    peer: Peers = None,
    peer_file: PeerFiles = None,
    objective: Objective = "latency",
    power_cap: PowerCap = None,
    power_modes: PowerModes = "",
    trials: Trials = 0,
    budget: Budget = "",
    train: Train = True,
    wait: Wait = "",
    reconnect: Reconnect = "5m",
    records: Records = "",
    threads: Threads = 0,
    shape: Shapes = None,
    lengths: Lengths = "",
    seed: Seed = 0,
    name: Annotated[str, typer.Option(help="Name on the device; the file's name if not given.")] = "",
    json_file: JsonFile = None,
    report: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Directory or .zip of the bundle.")] = None,
    verbose: Verbose = False,
) -> None:
    """Compile a model for a device, verify and measure it there, install and activate it.

    With several devices it is compiled once for each kind of board, verified and installed on each; one
    that fails changes nothing for the others, and the exit code is 1.
    """
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.console import ConsoleProgress
    from sdk.cli.fleet import deploy_to_several
    from sdk.report import figures

    how: dict[str, Any] = {
        "backend": backend,
        "processor": processor,
        "dtype": dtype,
        "peers": tuple(peer) if peer else None,
        "peer_files": parse_peer_files(peer_file),
        "objective": objective,
        "power_cap_w": power_cap,
        "power_modes": parse_names(power_modes),
        "trials": trials,
        "budget_s": parse_seconds(budget),
        "train": train,
        "wait_s": parse_seconds(wait, "--wait"),
        "reconnect_s": parse_seconds(reconnect, "--reconnect"),
        "records": records,
        "threads": threads,
        "shapes": parse_shapes(shape),
        "lengths": parse_lengths(lengths),
        "seed": seed,
        "name": name,
        "bundle": bundle,
        "report": report,
        "command": command_line(),
    }
    if api.names_several(device):
        deploy_to_several(model, device, json_file, **how)
        return
    with ConsoleProgress() as progress:
        result = api.deploy(model, device=device, progress=progress, **how)
    if json_file is not None:
        printing.write_json(json_file, figures.deploy_json(result.result))
    printing.print_deployment(result)
