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


def test_what_a_document_writes_is_not_in_the_repository(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "checkout"
    (root / "docs" / "__pycache__").mkdir(parents=True)
    for name in (".git", ".cache", "edgetlm-out"):
        (root / name).mkdir()
    texts = {root / "docs" / "guide.md": "text", root / "README.md": "read", root / ".ignore": "names"}
    for path, text in texts.items():
        path.write_text(text)
    make_checkout(root, folder)
    assert sorted(one.name for one in folder.iterdir()) == [".ignore", "README.md", "docs"]
    # New names, and names that the repository has.
    (folder / "docs" / "new.md").write_text("new")
    for path, text in texts.items():
        copy = folder / path.relative_to(root)
        assert copy.read_text() == text
        copy.write_text("another")
    assert sorted(one.name for one in (root / "docs").iterdir()) == ["__pycache__", "guide.md"]
    assert {path: path.read_text() for path in texts} == texts
