"""The checkpoint for a device: fine-tuned on its records, or the shipped one.

Fine-tuned checkpoints of one device profile and base lie in one folder. A new checkpoint is written beside
the old one, and `current` is replaced last, so that a reader always finds a complete checkpoint:

    <root>/<board>-<threads>/<key>/belongs.json            the content of the key
                                   current                 name of the checkpoint in use
                                   <digest>/model.json, weights.safetensors
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from host.errors import TlmError
from host.files import write_whole
from host.model import DeviceProfile
from host.places import data_root
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, SCHEMA, Card, read_card, read_weights

CURRENT, BELONGS = "current", "belongs.json"
SHIPPED = Path(__file__).parents[1] / "weights"
# Checkpoints that are kept: the one in use, and the one before it, which another process may be reading.
_KEPT = 2


def models_root() -> Path:
    """The folder of fine-tuned models: `$XDG_DATA_HOME/edgetlm/models`, else below `~/.local/share`."""
    return data_root() / "models"


def shipped() -> Path:
    """The checkpoint of the package.

    Raises:
        TlmError: the package has none.
    """
    if not (SHIPPED / CARD).is_file():
        raise TlmError(
            f"{SHIPPED}: no language model is shipped with this package; train one with `sdk tlm pretrain`"
        )
    return SHIPPED


def tuned_folder(profile: DeviceProfile, base: str, root: Path | None = None) -> Path:
    """The folder of the checkpoints that were fine-tuned for a device, which may not exist.

    Args:
        profile: of the device; its name and its calibration do not matter, as for records.
        base: digest of the pre-trained weights (`Card.root`).
        root: folder of all models; None takes the user's.
    """
    return folder_of(_belongs(profile, base), root)


def folder_of(belongs: Mapping[str, Any], root: Path | None = None) -> Path:
    """The folder of the checkpoints that belong to a profile and a base.

    Args:
        belongs: "profile" (`host.records.profile_data`), "schema" and "base".
        root: folder of all models; None takes the user's.
    """
    key = hashlib.sha256(json.dumps(belongs, sort_keys=True).encode()).hexdigest()
    profile = belongs["profile"]
    return _boards_folder(str(profile["board"]), int(profile["threads"]), root) / key[:16]


def model_for(
    profile: DeviceProfile, root: Path | None = None, note: Callable[[str], None] | None = None
) -> Path:
    """The checkpoint to use for a device: the accepted fine-tuned one, else the shipped one.

    Args:
        profile: of the device.
        root: folder of fine-tuned checkpoints; None takes the user's.
        note: called with a line if an earlier fine-tuning no longer applies.

    Raises:
        TlmError: the package has no weights, or the fine-tuned checkpoint is damaged.
    """
    base = shipped()
    digest = read_card(base).weights
    home = tuned_folder(profile, digest, root)
    found = accepted(home)
    if found is not None:
        return found
    if note is not None:
        for line in outdated(profile, digest, root):
            note(line)
    return base


def accepted(home: Path) -> Path | None:
    """The current checkpoint of a device's folder, checked; None if none was accepted yet.

    Raises:
        TlmError: it is damaged or missing.
    """
    current = home / CURRENT
    if not current.exists():
        return None
    advice = f"remove {home} and fine-tune again"
    try:
        name = current.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TlmError(f"{current} cannot be read ({error}); {advice}") from error
    # One name and no path: nothing outside of this folder is ever loaded.
    if not name.isalnum() or not (home / name).is_dir():
        raise TlmError(f"{current}: names no checkpoint ({name[:40]!r}); {advice}")
    try:
        read_weights(home / name, Vocabulary())
    except TlmError as error:
        raise TlmError(f"{home / name}: the fine-tuned model is damaged; {advice} ({error})") from error
    return home / name


def prepare(profile: DeviceProfile, base: str, root: Path | None = None) -> Path:
    """Make `tuned_folder`, with a file that names its board, so that a changed board can be reported.

    Raises:
        TlmError: it cannot be written.
    """
    home = tuned_folder(profile, base, root)
    text = json.dumps(_belongs(profile, base), indent=1, sort_keys=True)
    try:
        home.mkdir(parents=True, exist_ok=True)
        write_whole(home / BELONGS, f"{text}\n".encode())
    except OSError as error:
        raise TlmError(f"{home}: {error.strerror or error}; give another folder") from error
    return home


def accept(checkpoint: Path, home: Path) -> Path:
    """Make a checkpoint the current one; the old one stays until the copy is complete.

    Args:
        checkpoint: folder of the new checkpoint, which is copied.
        home: the device's folder.

    Raises:
        TlmError: the checkpoint is damaged, or the folder cannot be written.
    """
    _, card = read_weights(checkpoint, Vocabulary())
    name = checkpoint_name(card)
    target, partial = home / name, home / f".{name}.part"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if checkpoint != target:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(checkpoint, partial)
            shutil.rmtree(target, ignore_errors=True)
            partial.replace(target)
        write_whole(home / CURRENT, f"{name}\n".encode())
        _clean(home, name)
    except OSError as error:
        raise TlmError(f"{home}: {error.strerror or error}; the model in use stays") from error
    return target


def checkpoint_name(card: Card) -> str:
    """The name of a checkpoint's folder."""
    return card.weights[:16]


def outdated(profile: DeviceProfile, base: str, root: Path | None = None) -> tuple[str, ...]:
    """Why models that were fine-tuned for this board earlier no longer apply, one line for each model."""
    now = _belongs(profile, base)
    lines = []
    for path in sorted(_boards_folder(profile.board.name, profile.threads, root).glob(f"*/{BELONGS}")):
        if not (path.parent / CURRENT).exists():
            continue
        try:
            before = dict(json.loads(path.read_text()))
            another = before["profile"]["target"] != now["profile"]["target"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            lines.append(f"{path} is damaged ({type(error).__name__}); remove {path.parent}")
            continue
        changed = [text for key, text in _CHANGES.items() if before.get(key) != now[key]]
        # A board with another target is not this one in an earlier state.
        if changed and not another:
            lines.append(
                f"the model fine-tuned for {profile.board.name} with {profile.threads} threads does not "
                f"apply any more: {' and '.join(changed)} changed since; the shipped one is used, tune again"
            )
    return tuple(lines)


_CHANGES = {"profile": "the board's hardware model", "schema": "the format of models", "base": "its base"}


def _belongs(profile: DeviceProfile, base: str) -> dict[str, Any]:
    # Here, since it loads the database, which reading a model does not need.
    from host.records.store import profile_data

    return {"profile": profile_data(profile), "schema": SCHEMA, "base": base}


def _boards_folder(board: str, threads: int, root: Path | None) -> Path:
    name = "".join(letter if letter.isalnum() else "-" for letter in board)
    return (root or models_root()) / f"{name}-{threads}"


def _clean(home: Path, current: str) -> None:
    """Remove all checkpoints but the newest ones and the current one."""
    folders = [path.parent for path in home.glob(f"*/{CARD}") if not path.parent.name.startswith(".")]
    folders.sort(key=lambda folder: (folder.name == current, (folder / CARD).stat().st_mtime_ns))
    for folder in folders[:-_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
