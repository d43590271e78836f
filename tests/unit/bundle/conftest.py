"""A bundle that a test may damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from host import bundle
from tests.unit.bundle.samples import GOLDEN, PARAMETERS, draft


@pytest.fixture
def made(tmp_path: Path) -> Path:
    library = tmp_path / "some.so"
    library.write_bytes(b"not really a library")
    bundle.write_tvm(tmp_path / "bundle", draft(), library, iter(PARAMETERS), GOLDEN)
    return tmp_path / "bundle"
