"""The environments of the engines that language models are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host.compare.text_peers.peers import PEERS
from research.models.tflite_export import environment


@dataclass(frozen=True)
class Installed:
    """Engines that can be compared with.

    Attributes:
        pythons: interpreter of each, by name.
        missing: why another is left out, by name.
    """

    pythons: dict[str, Path]
    missing: dict[str, str]


def install(names: Sequence[str]) -> Installed:
    """The environments of some peers, made where they are missing.

    Args:
        names: of `PEERS`.
    """
    found = Installed({}, {})
    for name in names:
        try:
            found.pythons[name] = environment(PEERS[name].environment)
        except RuntimeError as error:
            found.missing[name] = " ".join(str(error).split())[-400:]
    return found
