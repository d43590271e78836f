"""The order of all tests, and what they share: one key of the host in a process, and the libraries of zig."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.longest_first import longest_first
from tests.shared_cache import ZIG


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files are handed out first."""
    items[:] = longest_first(items)


@pytest.fixture(scope="session", autouse=True)
def key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is signed with the user's own key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGETLM_KEYS", str(tmp_path_factory.mktemp("keys")))
        yield


@pytest.fixture(scope="session", autouse=True)
def libraries_of_zig() -> Iterator[None]:
    """A test whose caches are its own does not compile the C and C++ libraries again, which takes minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ZIG))
        yield
