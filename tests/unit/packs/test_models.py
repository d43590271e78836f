"""Fine-tuned models go with the pack of their board, and are tried out before they are used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from host.errors import EdgeError
from host.keys import host_key
from host.model import DeviceProfile
from host.packs import write_pack
from host.packs.manifest import model_files
from host.records import RecordStore, profile_data
from host.tlm.model import checkpoints
from host.tlm.model.card import CARD, WEIGHTS, read_card
from sdk.management.packs import publish, pull
from targets import board_for, declared
from tests.unit.packs.samples import BOARD, LINES, contents, made, trusting


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))


def _profile(threads: int = 1) -> DeviceProfile:
    board = board_for(declared()["x86_64-v3"])
    assert board is not None
    return DeviceProfile("desk", board, board.hardware, threads)


def _tuned(folder: Path, factor: float = 1.01, **changes: Any) -> Path:
    """A checkpoint that might have come out of the shipped one."""
    tensors = load_file(checkpoints.shipped() / WEIGHTS)
    name = min(tensors)
    tensors[name] = (tensors[name] * np.float16(factor)).astype(np.float16)
    data = save(tensors)
    card = json.loads((checkpoints.shipped() / CARD).read_text())
    base = read_card(checkpoints.shipped()).root
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    (folder / CARD).write_text(json.dumps({**card, "base": base, "weights": digest, **changes}))
    return folder


def _belongs(**changes: Any) -> dict[str, Any]:
    base = read_card(checkpoints.shipped())
    schema = json.loads((checkpoints.shipped() / CARD).read_text())["schema"]
    return {"profile": profile_data(_profile()), "schema": schema, "base": base.root, **changes}


def _packed(path: Path, checkpoint: Path, belongs: Mapping[str, Any]) -> Path:
    names = model_files(0)
    given = (
        json.dumps(belongs).encode(),
        (checkpoint / CARD).read_bytes(),
        (checkpoint / WEIGHTS).read_bytes(),
    )
    return made(path, {**contents(), **dict(zip(names, given, strict=True))})


def _digest(checkpoint: Path) -> str:
    return read_card(checkpoint).weights


def test_a_model_goes_with_its_board_and_is_used_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, profile = tmp_path / "p.pack", _profile()
    mine = _tuned(tmp_path / "mine")
    home = checkpoints.prepare(profile, read_card(checkpoints.shipped()).root)
    checkpoints.accept(mine, home)
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append(LINES)
        assert publish(BOARD, path, store).models == 1
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert checkpoints.model_for(profile) == checkpoints.shipped()
    with RecordStore(tmp_path / "other.sqlite") as store:
        assert pull(path, store, trusting(host_key())).models == 1
        used = checkpoints.model_for(profile)
        assert used.is_relative_to(tmp_path / "other") and _digest(used) == _digest(mine)
        assert pull(path, store, trusting(host_key())).models == 0
        # What is pulled is not passed on as one's own.
        assert publish(BOARD, tmp_path / "again.pack", store).models == 0
        # What is taught here counts first, whatever comes later.
        ours = _tuned(tmp_path / "ours", 1.02)
        checkpoints.accept(ours, used.parent)
        later = _packed(tmp_path / "later.pack", _tuned(tmp_path / "theirs", 1.03), _belongs())
        assert pull(later, store, trusting(host_key())).models == 0
        assert _digest(checkpoints.model_for(profile)) == _digest(ours)


def test_an_older_pack_replaces_no_model_of_a_newer_one(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "r.sqlite") as store:
        newer, older = _tuned(tmp_path / "newer", 1.02), _tuned(tmp_path / "older")
        names = model_files(0)
        belongs = tmp_path / names[0]
        belongs.write_text(json.dumps(_belongs()))
        path = _packed(tmp_path / "older.pack", older, _belongs())
        write_pack(tmp_path / "newer.pack", BOARD, LINES, None, [(belongs, newer / CARD, newer / WEIGHTS)])
        assert pull(path, store, trusting(host_key())).models == 1
        assert pull(tmp_path / "newer.pack", store, trusting(host_key())).models == 1
        assert pull(path, store, trusting(host_key())).models == 0
        assert _digest(checkpoints.model_for(_profile())) == _digest(newer)


def test_a_model_of_other_shipped_weights_is_left_out_and_said(tmp_path: Path) -> None:
    path = _packed(tmp_path / "p.pack", _tuned(tmp_path / "theirs"), _belongs(base="0" * 64))
    with RecordStore(tmp_path / "r.sqlite") as store:
        done = pull(path, store, trusting(host_key()))
    assert (done.models, done.new) == (0, len(LINES))
    assert ["other weights" in line for line in done.notes] == [True]
    assert checkpoints.model_for(_profile()) == checkpoints.shipped()


def _not_finite(folder: Path) -> Path:
    return _tuned(folder, float("nan"))


def _larger(folder: Path) -> Path:
    size = json.loads((checkpoints.shipped() / CARD).read_text())["size"]
    return _tuned(folder, size={**size, "layers": 10**6})


def _of_other_weights(folder: Path) -> Path:
    return _tuned(folder, weights="../../../outside")


def _deep(folder: Path) -> Path:
    (_tuned(folder) / CARD).write_text("[" * 100_000)
    return folder


def _no_tensors(folder: Path) -> Path:
    data = b"\xff" * 64
    _tuned(folder, weights=hashlib.sha256(data).hexdigest())
    (folder / WEIGHTS).write_bytes(data)
    return folder


HOSTILE: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "not finite": (_not_finite, {}, "its weights are not finite"),
    "larger": (_larger, {}, "its size or its base is not that of the shipped weights"),
    "digest": (_of_other_weights, {}, "the weights do not match"),
    "deep": (_deep, {}, "the card of a model is not valid JSON"),
    "no tensors": (_no_tensors, {}, "its fine-tuned model cannot be used"),
    "another board": (
        _tuned,
        {"profile": {"board": "../pi5", "threads": 1}},
        "a model is of the board ../pi5",
    ),
    "no threads": (_tuned, {"profile": {"board": BOARD, "threads": "../1"}}, "names no number of threads"),
    "no profile": (_tuned, {"profile": []}, "names no number of threads"),
    "no base": (_tuned, {"base": 5}, "names no profile with its base"),
}


@pytest.mark.parametrize(("make", "changes", "reason"), HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_model_refuses_its_pack(
    make: Callable[[Path], Path], changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = _packed(tmp_path / "p.pack", make(tmp_path / "theirs"), _belongs(**changes))
    with RecordStore(tmp_path / "r.sqlite") as store:
        with pytest.raises(EdgeError) as refused:
            pull(path, store, trusting(host_key()))
        assert not list(store)
    text = str(refused.value)
    assert reason in text and "nothing was imported" in text
    assert "\n" not in text and text.isprintable() and len(text) < 700
    assert not checkpoints.models_root().exists()
    assert checkpoints.model_for(_profile()) == checkpoints.shipped()


def test_a_part_of_a_model_refuses_its_pack(tmp_path: Path) -> None:
    checkpoint = _tuned(tmp_path / "theirs")
    given = {model_files(0)[2]: (checkpoint / WEIGHTS).read_bytes()}
    path = made(tmp_path / "p.pack", {**contents(), **given})
    with (
        RecordStore(tmp_path / "r.sqlite") as store,
        pytest.raises(
            EdgeError, match=r"names other files than records\.jsonl, calibration\.json and models"
        ),
    ):
        pull(path, store, trusting(host_key()))
