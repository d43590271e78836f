"""The origin of a record: the command, the model and the device, and the proposer of the program."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# `RecordOrigin.measured_in` of a kernel that was timed inside of a model.
MODEL = "model"
# Of `RecordOrigin.pack`.
_PACK_FIELDS = {"signer", "key", "made_at", "version"}
# Of `RecordOrigin.epoch`.
_EPOCH = re.compile(r"[0-9a-f]{32}")
# No rule's estimate has more parts.
_MOST_PARTS = 32


@dataclass(frozen=True)
class RecordOrigin:
    """The origin of a measurement; fields are None where they are not known.

    A record of another program may say more, or something else by these names. That is kept as it came, in
    `foreign`: it is written again, and nothing reads it.

    Attributes:
        command: as typed.
        seed: of the command.
        versions: of the packages of host and device, by name.
        model: its name.
        device: the user's name for the device that measured.
        host: name of the machine that asked.
        tuning: names the tuning (`host.tuning.history.tuning_key`).
        batch: number of the batch in its tuning, from 0.
        elapsed_s: seconds of the tuning until then, earlier runs included.
        task: name of the kernel in the model.
        sentence: the task in words of the tensor language, so that a model can learn from records alone.
        base: digest of the language model that proposed the program.
        unit_factor: seconds of the device for one of its group's, which the times were divided by.
        measured_in: `MODEL` where the kernel was timed inside of a model, with the caches as the model leaves
            them; None where it was timed by itself.
        estimate_parts_s: what the estimate of the program is made of, in seconds, and their "total": see
            `DesignSpace.estimated`.
        pack: where it came with a pack of another host: its "signer", their "key", when it was "made_at", and
            its "version", the SHA-256 of its manifest.
        epoch: names the board's epoch in which it was measured (`host.records.epochs`).
        foreign: everything else, by name.
    """

    command: str | None = None
    seed: int | None = None
    versions: Mapping[str, str] | None = None
    model: str | None = None
    device: str | None = None
    host: str | None = None
    tuning: str | None = None
    batch: int | None = None
    elapsed_s: float | None = None
    task: str | None = None
    sentence: tuple[str, ...] | None = None
    base: str | None = None
    unit_factor: float | None = None
    measured_in: str | None = None
    estimate_parts_s: Mapping[str, float] | None = None
    pack: Mapping[str, str] | None = None
    epoch: str | None = None
    foreign: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> RecordOrigin:
        """The origin in plain data; a value that this program does not write is foreign, never an error."""
        known: dict[str, Any] = {}
        foreign: dict[str, Any] = {}
        for name, value in data.items():
            is_ours = _CHECKS.get(name)
            (known if is_ours is not None and is_ours(value) else foreign)[name] = value
        if "sentence" in known:
            known["sentence"] = tuple(known["sentence"])
        return cls(**known, foreign=foreign)

    def data(self) -> dict[str, Any]:
        """The same as plain data; `read` gives the origin back."""
        known = {name: value for name in _CHECKS if (value := getattr(self, name)) is not None}
        if self.sentence is not None:
            known["sentence"] = list(self.sentence)
        for name in ("versions", "estimate_parts_s", "pack"):
            if name in known:
                known[name] = dict(known[name])
        return {**self.foreign, **known}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_pack(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == _PACK_FIELDS and all(map(_is_text, value.values()))


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "command": _is_text,
    "seed": lambda value: type(value) is int,
    "versions": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "model": _is_text,
    "device": _is_text,
    "host": _is_text,
    "tuning": _is_text,
    "batch": _is_count,
    "elapsed_s": _is_number,
    "task": _is_text,
    "sentence": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "base": _is_text,
    "unit_factor": lambda value: _is_number(value) and value > 0,
    "measured_in": lambda value: value == MODEL,
    "estimate_parts_s": lambda value: (
        isinstance(value, dict) and len(value) <= _MOST_PARTS and all(map(_is_number, value.values()))
    ),
    "pack": _is_pack,
    "epoch": lambda value: _is_text(value) and bool(_EPOCH.fullmatch(value)),
}
