"""What CONTRIBUTING.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.recipes import DOCUMENT, files

ROOT = Path(__file__).parents[2]
_FOLDERS = "targets|host|device_agent|tests|examples|benchmarks|docs"
_NAMED = re.compile(rf"`((?:{_FOLDERS})/[\w/.]*\w)`|\]\((docs/[\w.-]+)\)")


def test_named_files_exist() -> None:
    named = {first or second for first, second in _NAMED.findall(DOCUMENT.read_text())}
    made_up = {*files(), "targets/boards/NAME.toml"}
    assert {"host/schedules/api.py", "docs/support.md"} < named
    assert [name for name in sorted(named - made_up) if not (ROOT / name).exists()] == []
