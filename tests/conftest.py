"""One key of the host for all tests of a process: what one of them makes another one may load."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is signed with the user's own key."""
    before = os.environ.get("EDGETLM_KEYS")
    os.environ["EDGETLM_KEYS"] = str(tmp_path_factory.mktemp("keys"))
    yield
    if before is None:
        del os.environ["EDGETLM_KEYS"]
    else:
        os.environ["EDGETLM_KEYS"] = before
