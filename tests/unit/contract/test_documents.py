"""The documents say the bounds that are in force."""

from __future__ import annotations

import re
from pathlib import Path

from device_agent.contract.limits import LIMITS

DOCS = Path(__file__).parents[3] / "docs"


def test_the_table_of_the_wires_bounds_is_that_of_the_contract():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .+ \|$", (DOCS / "wire.md").read_text(), re.MULTILINE)
    assert {name: int(value) for name, value in rows} == LIMITS.wire._asdict()
