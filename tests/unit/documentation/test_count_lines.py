"""The figures of docs/extending.md: lines by kind, and lines by commits."""

from __future__ import annotations

import sys

from tests.unit.test_requirements import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
try:
    import count_lines
finally:
    sys.path.pop(0)

_SOURCE = '''"""Two
lines."""

import os
from a import (
    b,
)

# A comment.
x = "no docstring"  # code


def f() -> None:
    """One."""
    """Code: a second text is no docstring."""
'''


def test_every_line_of_a_file_is_of_one_kind() -> None:
    found = count_lines.kinds_of(_SOURCE)
    assert found == {"docstring": 3, "blank": 4, "import": 4, "comment": 1, "code": 3}
    assert found.total() == _SOURCE.count("\n")


def test_commits_that_change_no_program_are_counted_apart() -> None:
    log = (
        "> [same] Moved\n\n2\t1\thost/{old => new}/a.py\n5\t0\tdocs/a.md\n7\t7\ttests/a.py\n"
        "> New\n\n10\t3\tsdk/b.py\n-\t-\thost/picture.png\n4\t0\tdevice_agent/native/c.cc\n"
        "1\t1\ttests/d.py => research/d.py\n"
    )
    assert count_lines.by_commits(log) == {"[same]": [1, 2, 1], "others": [1, 14, 3]}


def test_the_widest_folder_is_counted_without_its_package_file() -> None:
    names = ("host/a/__init__.py", "host/a/b.py", "host/a/c.py", "host/d/e.py")
    assert count_lines.widest(names) == ("host/a", 2)
