"""The command line, as a user types it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from sdk.cli.main import main
from tests.servers.mirror import skip_while_in_flux


def sdk(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """What a command prints; it has to succeed."""
    capsys.readouterr()
    code = main(shlex.split(line))
    said = capsys.readouterr()
    if code:
        skip_while_in_flux(said.err)
    assert code == 0, f"{line}\n{said.out}\n{said.err}"
    return said.out


def deployed(capsys: pytest.CaptureFixture[str], model: Path, device: str, folder: Path) -> dict[str, Any]:
    """The result of deploying a model to a device."""
    result = folder / f"{model.stem}-{device}.json"
    sdk(
        capsys,
        f"deploy {model} --device {device} --threads 1 --bundle {folder / model.stem} --json {result}"
        f" --report {folder / 'report.html'}",
    )
    found: dict[str, Any] = json.loads(result.read_text())
    return found
