"""Charts look as the committed pictures do; see tests/pictures.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pictures import alike, grey_pictures, references
from tests.unit.sdk.report.drawings import drawings


def test_charts_look_as_they_did(tmp_path: Path) -> None:
    known, made = references(), grey_pictures(drawings(), tmp_path)
    assert known.keys() == made.keys()
    assert [name for name in made if not alike(made[name], known[name])] == [], (
        "python -m tests.pictures writes the pictures again, if the change is meant"
    )
    assert all(len(set(cells)) > 8 for cells in made.values()), "an empty picture"


def test_another_result_is_another_picture(tmp_path: Path) -> None:
    known, made = references(), grey_pictures(drawings(ours_ms=1.5), tmp_path)
    changed = {name for name in made if not alike(made[name], known[name])}
    assert {"latency-wide", "latency-narrow", "rounds-wide", "share"} <= changed
    assert not changed & {"stages-wide", "stages-narrow", "front-wide"}


def test_pictures_do_not_depend_on_the_fonts_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = drawings()
    usual = grey_pictures(drawn, tmp_path / "usual")
    (tmp_path / "fonts.conf").write_text(
        f'<?xml version="1.0"?><fontconfig><cachedir>{tmp_path / "cache"}</cachedir></fontconfig>'
    )
    monkeypatch.setenv("FONTCONFIG_FILE", str(tmp_path / "fonts.conf"))
    assert grey_pictures(drawn, tmp_path / "without") == usual
