"""Fine-tuned models that go from one host to another with the records that taught them.

A model belongs to what `belongs.json` beside it says: a board's profile and the weights that the fine-tuning
began from. It is used where a host has the same board and ships the same weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import TlmError
from host.files import write_whole
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, SCHEMA, WEIGHTS, read_card
from host.tlm.model.checkpoints import (
    BELONGS,
    CURRENT,
    accept,
    accepted,
    checkpoint_name,
    folder_of,
    models_root,
    shipped,
)

# Which checkpoint of a folder came in a pack, and in which one.
PACK = "pack.json"
_MOST_BYTES = 1 << 20
# A half-precision model of the greatest size that is made, with room for names.
_WEIGHT_BYTES = 1 << 25


@dataclass(frozen=True)
class TunedModel:
    """A fine-tuned model as files.

    Attributes:
        belongs: file with the profile, the format and the base.
        card: file of the checkpoint.
        weights: file of the checkpoint.
    """

    belongs: Path
    card: Path
    weights: Path


@dataclass(frozen=True)
class CheckedModel:
    """A model from elsewhere that can be used here.

    Attributes:
        belongs: what its file says.
        folder: with its checkpoint.
    """

    belongs: Mapping[str, Any]
    folder: Path


def tuned_models(
    wanted: Callable[[Mapping[str, Any]], bool], root: Path | None = None
) -> tuple[TunedModel, ...]:
    """The models in use that were fine-tuned from the shipped weights; one of a pack is not passed on.

    Args:
        wanted: says of a profile (`host.records.profile_data`) whether its models are.
        root: folder of all models; None takes the user's.

    Raises:
        TlmError: the package has no weights, or a model is damaged.
    """
    base = read_card(shipped()).root
    found = []
    for path in sorted((root or models_root()).glob(f"*/*/{BELONGS}")):
        try:
            belongs = _belongs(path.read_bytes())
        except ValueError as error:
            raise TlmError(f"{path} is damaged ({error}); remove {path.parent}") from error
        if belongs["base"] != base or not wanted(belongs["profile"]):
            continue
        folder = accepted(path.parent)
        if folder is not None and _pack_of(path.parent) is None:
            found.append(TunedModel(path, folder / CARD, folder / WEIGHTS))
    return tuple(found)


def checked(model: TunedModel, board: str, folder: Path) -> CheckedModel | str:
    """A model from elsewhere, tried out; or why it is of no use here.

    Args:
        model: its files, which are not trusted.
        board: that it has to be of.
        folder: an empty one, for its checkpoint.

    Raises:
        ValueError: it is no model, or one of another board; the message is one line.
    """
    belongs = _belongs(_bounded(model.belongs, _MOST_BYTES))
    profile = belongs["profile"]
    if profile.get("board") != board:
        raise ValueError(f"a model is of the board {printable(profile.get('board'), 100)}")
    card, weights = _bounded(model.card, _MOST_BYTES), _bounded(model.weights, _WEIGHT_BYTES)
    strict_json.parse(card, _MOST_BYTES, "the card of a model")
    if belongs["schema"] != SCHEMA or belongs["base"] != read_card(shipped()).root:
        return "a fine-tuned model of it is left out: it began from other weights than those of this version"
    folder.mkdir()
    (folder / CARD).write_bytes(card)
    (folder / WEIGHTS).write_bytes(weights)
    try:
        _try(folder, belongs["base"])
    except TlmError as error:
        raise ValueError(f"its fine-tuned model cannot be used: {printable(error, 200)}") from error
    return CheckedModel(belongs, folder)


def keep(model: CheckedModel, pack: Mapping[str, str], root: Path | None = None) -> bool:
    """Use a model from a pack, unless one that was taught here or came with a younger pack is there.

    Args:
        model: that is to be used.
        pack: where it comes from (`host.packs.Origin.data`).
        root: folder of all models; None takes the user's.

    Returns:
        Whether it is new.

    Raises:
        TlmError: it cannot be written.
    """
    home = folder_of(model.belongs, root)
    known = _pack_of(home)
    if (home / CURRENT).exists() and (known is None or _time(known["made_at"]) >= _time(pack["made_at"])):
        return False
    try:
        home.mkdir(parents=True, exist_ok=True)
        write_whole(home / BELONGS, (json.dumps(model.belongs, indent=1, sort_keys=True) + "\n").encode())
        # First, so that no model of a pack is ever taken for one that was taught here.
        name = checkpoint_name(read_card(model.folder))
        write_whole(home / PACK, json.dumps({**pack, "checkpoint": name}).encode())
    except OSError as error:
        raise TlmError(f"{home}: {error.strerror or error}; pull the pack again") from error
    accept(model.folder, home)
    return True


def _pack_of(home: Path) -> dict[str, str] | None:
    """The pack of the checkpoint in use; None where it was taught here."""
    try:
        found = dict(json.loads((home / PACK).read_text()))
        of_it = found["checkpoint"] == (home / CURRENT).read_text().strip()
        _time(found["made_at"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TlmError(f"{home / PACK} is damaged ({type(error).__name__}); remove {home}") from error
    return found if of_it else None


def _try(folder: Path, base: str) -> None:
    """Load a checkpoint as its user does, and see that it is one of the shipped model's kind.

    Raises:
        TlmError: why it is not.
    """
    import torch

    from host.tlm.model.network import load_model

    card, ours = read_card(folder), read_card(shipped())
    if card.size != ours.size or card.root != base:
        raise TlmError("its size or its base is not that of the shipped weights")
    network, _ = load_model(folder, Vocabulary())
    if not all(bool(torch.isfinite(one).all()) for one in network.parameters()):
        raise TlmError("its weights are not finite")


def _belongs(data: bytes) -> dict[str, Any]:
    """The content of `belongs.json`.

    Raises:
        ValueError: it is none.
    """
    found = strict_json.parse(data, _MOST_BYTES, BELONGS)
    texts = isinstance(found, dict) and set(found) == {"profile", "schema", "base"}
    if not texts or not all(isinstance(found[name], str) for name in ("schema", "base")):
        raise ValueError(f"{BELONGS} names no profile with its base")
    profile = found["profile"]
    threads = profile.get("threads") if isinstance(profile, dict) else None
    if type(threads) is not int or not 1 <= threads <= LIMITS.records.threads:
        raise ValueError(f"{BELONGS} names no number of threads")
    return dict(found)


def _bounded(path: Path, most: int) -> bytes:
    if path.stat().st_size > most:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, at most {most} are read")
    return path.read_bytes()


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no time zone")
    return found
