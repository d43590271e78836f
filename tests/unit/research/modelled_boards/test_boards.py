"""Files of modelled boards, and that the model takes them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from host.errors import UserError
from research.modelled_boards import boards
from research.modelled_boards.boards import modelled_board, modelled_board_names, read_board

FILE = Path(boards.__file__).parent / "boards" / "raspberry_pi_4.toml"


@pytest.mark.parametrize("name", modelled_board_names())
def test_every_board_names_its_sources_and_what_its_programs_are_made_for(name: str) -> None:
    text = (FILE.parent / f"{name}.toml").read_text()
    assert "Sources:" in text and "estimate" in text
    board, declaration = modelled_board(name), modelled_board(name).declaration()
    assert declaration.name == name
    assert board.frequency_hz == pytest.approx(declaration.hardware.frequency_hz, rel=0.05)
    sizes = [level.size_bytes for level in declaration.hardware.levels if level.size_bytes]
    assert sizes == [level.size_bytes for level in board.levels]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("misses = 6\n", "", "misses"),
        ("misses = 6\n", "misses = 0\n", "misses is 0"),
        ("misses = 6\n", "misses = 6\nmissed = 6\n", "missed"),
        ("[[levels]]\n", "[[other]]\n", "other|levels"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(FILE.read_text().replace(old, new))
    with pytest.raises(UserError, match=said):
        read_board(path)


def test_an_unknown_board_is_refused() -> None:
    with pytest.raises(UserError, match="raspberry_pi_4"):
        modelled_board("raspberry_pi_9")
