"""What a command of a document starts ends with it, and what it writes is not in the repository."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.documents.__main__ import ended
from tests.documents.places import Place, make_checkout


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that takes a moment."""
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    where = Place(tmp_path, dict(os.environ))
    # The shell says the number of a process that it starts, and waits for it.
    code, said = ended(["sh", "-c", "sleep 600 > /dev/null & echo $!; wait"], where, 5.0)
    assert code == -1 and said.startswith("not ended after 5.0 s: ")
    # It ends soon; what adopted it may not have asked for its status yet.
    stat = Path("/proc") / said.split()[-1] / "stat"
    until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX")
    assert ended(["sh", "-c", "echo said; exit 3"], where, 60.0) == (3, "said\n")


def test_new_files_of_a_document_are_not_in_the_repository(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "checkout"
    (root / "docs" / "__pycache__").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "docs" / "guide.md").write_text("text")
    make_checkout(root, folder)
    assert [one.name for one in folder.iterdir()] == ["docs"]
    assert (folder / "docs" / "guide.md").read_text() == "text"
    (folder / "docs" / "new.md").write_text("new")
    assert sorted(one.name for one in (root / "docs").iterdir()) == ["__pycache__", "guide.md"]
