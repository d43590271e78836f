"""Which checkpoint is used for a device: replaced whole, and told apart where it is damaged or foreign."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from host.errors import TlmError
from host.model import DeviceProfile
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model import checkpoints
from host.tlm.model.card import CARD, WEIGHTS, Size, read_card
from host.tlm.model.network import new_model, save_model
from tests.unit.tlm.cases import board_of

SIZE = Size(layers=1, heads=1, width=32)


def _checkpoint(folder: Path, seed: int, base: str = "") -> str:
    return save_model(new_model(Vocabulary(), SIZE, seed), folder, Vocabulary(), SIZE, base, {}).weights


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(checkpoints, "SHIPPED", tmp_path / "shipped")
    return _checkpoint(tmp_path / "shipped", 0)


@pytest.fixture
def profile() -> DeviceProfile:
    board = board_of("x86_64-v3")
    return DeviceProfile("desk", board, board.hardware, 1)


def test_the_shipped_model_is_used_until_a_tuned_one_is_accepted(
    tmp_path: Path, base: str, profile: DeviceProfile
) -> None:
    root = tmp_path / "models"
    assert checkpoints.model_for(profile, root) == tmp_path / "shipped"
    home = checkpoints.prepare(profile, base, root)
    assert home == checkpoints.tuned_folder(profile, base, root)
    assert checkpoints.model_for(profile, root) == tmp_path / "shipped"
    digest = _checkpoint(tmp_path / "new", 1, base)
    used = checkpoints.accept(tmp_path / "new", home)
    assert checkpoints.model_for(profile, root) == used
    assert read_card(used).weights == digest
    # It belongs to threads and board, not to the name of the device or its calibration.
    renamed = replace(profile, device="other", hardware=replace(profile.hardware, peak_flops=1e9))
    assert checkpoints.model_for(renamed, root) == used
    assert checkpoints.model_for(replace(profile, threads=2), root) == tmp_path / "shipped"


def test_a_package_without_weights_says_so(
    tmp_path: Path, profile: DeviceProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SHIPPED", tmp_path / "nothing")
    with pytest.raises(TlmError, match="no language model is shipped"):
        checkpoints.model_for(profile, tmp_path)


def test_the_old_model_stays_until_the_new_one_is_whole(
    tmp_path: Path, base: str, profile: DeviceProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = checkpoints.prepare(profile, base, tmp_path / "models")
    for seed in (1, 2):
        _checkpoint(tmp_path / str(seed), seed, base)
    first = checkpoints.accept(tmp_path / "1", home)
    (tmp_path / "2" / WEIGHTS).write_bytes(b"cut off")
    with pytest.raises(TlmError, match="weights do not match"):
        checkpoints.accept(tmp_path / "2", home)
    assert checkpoints.accepted(home) == first
    _checkpoint(tmp_path / "2", 2, base)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", full)
        with pytest.raises(TlmError, match="No space left on device; the model in use stays"):
            checkpoints.accept(tmp_path / "2", home)
    assert checkpoints.accepted(home) == first
    second = checkpoints.accept(tmp_path / "2", home)
    assert checkpoints.accepted(home) == second != first
    assert first.is_dir(), "somebody may still be reading it"
    _checkpoint(tmp_path / "3", 3, base)
    third = checkpoints.accept(tmp_path / "3", home)
    assert sorted(path.parent for path in home.glob(f"*/{CARD}")) == sorted([second, third])


@pytest.mark.parametrize("damage", ["weights", "card", "gone", "outside", "bytes"])
def test_a_damaged_tuned_model_is_an_error_and_nothing_else_is_taken(
    tmp_path: Path, base: str, profile: DeviceProfile, damage: str
) -> None:
    home = checkpoints.prepare(profile, base, tmp_path / "models")
    _checkpoint(tmp_path / "new", 1, base)
    used = checkpoints.accept(tmp_path / "new", home)
    if damage == "weights":
        (used / WEIGHTS).write_bytes((used / WEIGHTS).read_bytes()[:-7])
    elif damage == "card":
        (used / CARD).write_text("{")
    elif damage == "gone":
        used.rename(tmp_path / "elsewhere")
    elif damage == "outside":
        (home / checkpoints.CURRENT).write_text("../../../shipped")
    else:
        (home / checkpoints.CURRENT).write_bytes(b"\xff\xfe")
    with pytest.raises(TlmError, match="fine-tune again") as caught:
        checkpoints.model_for(profile, tmp_path / "models")
    assert "\n" not in str(caught.value)


def test_a_board_that_changed_is_told_that_its_tuning_does_not_apply(
    tmp_path: Path, base: str, profile: DeviceProfile
) -> None:
    root = tmp_path / "models"
    _checkpoint(tmp_path / "new", 1, base)
    home = checkpoints.prepare(profile, base, root)
    told: list[str] = []
    grown = replace(profile.board.hardware, fma_latency_cycles=9)
    changed = replace(profile, board=replace(profile.board, hardware=grown))
    assert checkpoints.model_for(changed, root, told.append) == tmp_path / "shipped"
    assert told == [], "nothing was tuned yet"
    used = checkpoints.accept(tmp_path / "new", home)
    assert checkpoints.model_for(changed, root, told.append) == tmp_path / "shipped"
    [line] = told
    assert (
        "fine-tuned for x86_64 with 1 threads" in line
        and "hardware model changed" in line
        and "tune again" in line
    )
    assert checkpoints.model_for(profile, root, told.append) == used
    assert len(told) == 1
    [line] = checkpoints.outdated(profile, "another base", root)
    assert "its base changed" in line
    other = board_of("x86_64-v4")
    assert checkpoints.outdated(replace(profile, board=other), base, root) == (), "another machine"
    content = json.loads((home / checkpoints.BELONGS).read_text())
    (home / checkpoints.BELONGS).write_text(json.dumps({**content, "schema": "edgetlm.tlm/1"}))
    assert "the format of models changed" in checkpoints.outdated(profile, base, root)[0]
    (home / checkpoints.BELONGS).write_text("no JSON")
    assert "damaged" in checkpoints.outdated(profile, base, root)[0]


def test_models_lie_in_the_users_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert checkpoints.models_root() == tmp_path / "edgetlm" / "models"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert checkpoints.models_root() == Path.home() / ".local" / "share" / "edgetlm" / "models"
