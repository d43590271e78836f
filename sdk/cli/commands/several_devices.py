"""What `sdk deploy` does and shows for several devices."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from host.options import DeployOptions
from sdk.cli import printing
from sdk.cli.console import print_line
from sdk.cli.options import GATE_NOT_MET
from sdk.cli.terminal import ConsoleProgress
from sdk.fleet import FleetDeployment, deploy_fleet
from sdk.text import data_without_host_paths

SCHEMA = "edgetlm.fleet/1"


def deploy_to_several(
    model: Path, options: DeployOptions, report: Path | None, json_file: Path | None
) -> None:
    """Deploy, write the figures and print the table.

    Raises:
        typer.Exit: with code 1 where a device failed, 3 where a gate is not met.
    """
    with ConsoleProgress() as progress:
        result = deploy_fleet(model, options, report=report, progress=progress)
    if json_file is not None:
        printing.write_json(json_file, fleet_json(result))
    for one in result.kinds:
        printing.print_deployment(one)
    print_line("")
    for line in table(result):
        print_line(line)
    if printing.print_failed_gates([one.result for one in result.kinds]):
        raise typer.Exit(GATE_NOT_MET)
    if result.failed:
        raise typer.Exit(1)


def table(result: FleetDeployment) -> list[str]:
    """A line for each device: its board, the active version and its time, or why there is none."""
    width = max(len(one.device) for one in result.devices)
    lines = []
    for one in result.devices:
        if one.reason:
            lines.append(f"{one.device:<{width}}  {one.board:<18} FAILED  {one.reason}")
            continue
        time_text = "" if one.median_s is None else f"{one.median_s * 1e3:.3f} ms"
        lines.append(
            f"{one.device:<{width}}  {one.board:<18} active  {one.version[:12]}  {time_text}".rstrip()
        )
    done = len(result.devices) - len(result.failed)
    return [*lines, f"{done} of {len(result.devices)} devices run it"]


def fleet_json(result: FleetDeployment) -> dict[str, Any]:
    """What `sdk deploy --json` writes for several devices."""
    from sdk.report import figures

    return {
        "schema": SCHEMA,
        "devices": [data_without_host_paths(asdict(one)) for one in result.devices],
        "kinds": [figures.deploy_json(one.result) for one in result.kinds],
    }
