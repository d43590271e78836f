"""`sdk run`: one inference of a bundle on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device_agent.contract.text import printable
from sdk.cli import completion
from sdk.cli.help import add_command
from sdk.cli.options import ArraysFile, DeviceName, Trust, Verbose


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, run, "sdk run edgetlm-out/mobilenet/bundle --input image.npz --device pi5")


def run(
    bundle: Annotated[
        Path,
        typer.Argument(
            help="Bundle directory or zip, or the name of an installed model.",
            autocompletion=completion.runnable,
        ),
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Arrays by input name, a .npz file; a .npy file for the only input; nothing for a model "
            "without inputs.",
        ),
    ] = None,
    outputs: ArraysFile = None,
    device: DeviceName = "local",
    trust: Trust = "signed",
    verbose: Verbose = False,
) -> None:
    """Run a bundle once on a device and show or save its outputs."""
    from host.errors import UserError
    from sdk import api
    from sdk.cli.console import print_line

    arrays = {} if inputs is None else api.read_arrays(inputs)
    with api.load(bundle, device=device, trust=trust) as model:
        if model.warning:
            print_line(f"warning: {model.warning}")
        if inputs is None and model.signature.inputs:
            wanted = ", ".join(f"{one.name} {one.dtype}{list(one.shape)}" for one in model.signature.inputs)
            raise UserError(f"{bundle} takes {printable(wanted)}: give the arrays with --input FILE.npz")
        values = model.run(arrays)
    if outputs is not None:
        api.write_arrays(outputs, values)
    for name, value in values.items():
        flat = ", ".join(f"{number:.6g}" for number in value.reshape(-1)[:8])
        dots = ", ..." if value.size > 8 else ""
        print_line(f"{name}  {value.dtype}{list(value.shape)}  [{flat}{dots}]")
