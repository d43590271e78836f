"""`sdk records publish` and `pull`: what a board knows, as one signed file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sdk.cli.options import Records, Verbose


def publish(
    name: Annotated[
        str, typer.Argument(metavar="DEVICE", help="Device whose records are taken, or the name of a board.")
    ],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    records: Records = "",
    verbose: Verbose = False,
) -> None:
    """Write what is known of a board as one file, signed: records, calibration, fine-tuned models."""
    from device_agent.contract.signing import short
    from sdk.cli.console import print_line
    from sdk.management import packs
    from sdk.management.records import open_store

    with open_store(records, must_exist=True) as store:
        done = packs.publish(name, path, store)
    calibration = "its calibration" if done.calibrated else "no calibration"
    models = f", and {done.models} fine-tuned models" if done.models else ""
    print_line(f"{done.records} records of {done.board} and {calibration}{models} written to {path}")
    print_line(f"signed by {done.signer} (key {short(done.key)}); a host that is to pull it once runs")
    print_line(f"sdk keys trust {done.key} --name NAME")


def pull(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File that sdk records publish wrote.")],
    records: Records = "",
    verbose: Verbose = False,
) -> None:
    """Add the records, calibration and models of a pack; only of hosts whose key is trusted here."""
    from device_agent.contract.signing import short
    from sdk.cli.console import print_line
    from sdk.management import keys, packs
    from sdk.management.records import open_store

    with open_store(records) as store:
        done = packs.pull(path, store, keys.listed())
    if done.refused:
        print_line(f"left out: {done.refused}")
    origin = done.origin
    print_line(f"pack of {origin.signer} (key {short(origin.key)}) of {origin.made_at[:10]}")
    print_line(f"{done.new} of {done.found} records of {done.board} are new")
    if done.calibrated is not None:
        print_line(f"its calibration is {'new' if done.calibrated else 'not newer than what is here'}")
    if done.models:
        print_line(f"{done.models} fine-tuned models of it are used from now on")
    for line in done.notes:
        print_line(line)
