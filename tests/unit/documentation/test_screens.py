"""Pictures of terminals show what commands write today."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest

from sdk.cli import printing
from tests.unit.documentation import DOCUMENTS, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
try:
    import make_screens
    import site_commands
finally:
    sys.path.pop(0)

PICTURES = sorted((ROOT / "docs/screens").glob("*.svg"))
PHOTOGRAPHS = sorted((ROOT / "docs/screens").glob("*.png"))


def text_of(picture: Path) -> str:
    """What a picture says, line by line."""
    found = re.findall(r"<text [^>]*>(.*?)</text>", picture.read_text(), re.DOTALL)
    return html.unescape("\n".join(found)).replace("\xa0", " ")


@pytest.mark.parametrize("name", make_screens.STEADY)
def test_a_steady_picture_is_that_of_today(name: str) -> None:
    kept = (ROOT / f"docs/screens/{name}.svg").read_text()
    assert make_screens.SCREENS[name]() == kept, f"run scripts/make_screens.py {name}"


def test_every_picture_is_made_by_the_script_and_shown() -> None:
    assert {picture.stem for picture in [*PICTURES, *PHOTOGRAPHS]} == set(make_screens.SCREENS)
    shown = "".join(path.read_text() for path in DOCUMENTS) + site_commands.command_page()
    for picture in [*PICTURES, *PHOTOGRAPHS]:
        assert f"screens/{picture.name})" in shown, picture.name


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: one.stem)
def test_a_picture_loads_nothing_and_shows_no_path_of_a_machine(picture: Path) -> None:
    assert not re.search(r"url\((?!#)|href=|<script|@font-face", picture.read_text())
    assert not re.search(r"/tmp|/home|/root|/work", text_of(picture))


def test_the_end_of_a_deployment_has_todays_lines() -> None:
    shown = text_of(ROOT / "docs/screens/deploy.svg")
    source = Path(printing.__file__).read_text()
    labels = set(re.findall(r'print_line\(\s*f?"(Compared|Power|State|Next|bundle|report|memory) ', source))
    assert {"Compared", "Power", "State", "Next", "bundle", "report"} <= labels
    assert [label for label in labels if not re.search(rf"^{label} ", shown, re.MULTILINE)] == []
    assert "Simulated board" in shown
