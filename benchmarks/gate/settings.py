"""What the trainings of a folder depend on: a later call goes on only with the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gate import false_acceptance, network, simulated
from host.errors import UserError
from host.files import write_whole
from host.schedules.families import rule_versions
from host.tlm.model.card import read_card
from host.tlm.training import gate
from host.tlm.training.fitting import FinetuneOptions
from host.tuning.learning.finetuning import between_batches

_FILE = "settings.json"
# Options of a fine-tuning that say where and when it is, and not how.
_PLACES = ("start", "out", "present", "replay", "seed", "resume", "save_every", "threads", "always")


def settings_of(start: Path) -> dict[str, Any]:
    """What trainings that start from a checkpoint depend on: gate, options, tasks and versions of rules."""
    last = FinetuneOptions(start, start)
    return {
        "gate": {**gate.DESIGN, "least_gain": gate.LEAST_GAIN},
        "between_batches": _how(between_batches(last)),
        "last": _how(last),
        "simulated": simulated.DESIGN,
        "false_acceptance": {
            "shuffles": false_acceptance.SHUFFLES,
            "counts": list(false_acceptance.COUNTS),
        },
        "network": network.DESIGN,
        "start": read_card(start).weights,
        "rules": rule_versions(),
    }


def check_settings(folder: Path, start: Path) -> dict[str, Any]:
    """The settings, kept in a folder at the first call.

    Args:
        folder: with the tasks and lines of earlier calls.
        start: the checkpoint that trainings start from.

    Raises:
        UserError: what is there was made with other settings, or it is not known with which.
    """
    path, found = folder / _FILE, settings_of(start)
    if path.is_file():
        known = json.loads(path.read_text())
        other = [name for name, value in found.items() if known.get(name) != value]
        if other:
            raise UserError(f"{path}: made with other settings ({', '.join(other)}): give another --folder")
    elif next(folder.glob("*.jsonl"), None) is not None:
        raise UserError(f"{folder}: made with unknown settings: give another --folder")
    else:
        write_whole(path, json.dumps(found, indent=1).encode())
    return found


def _how(options: FinetuneOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name not in _PLACES}
