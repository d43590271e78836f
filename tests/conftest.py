"""The order of all tests and their examples, a key of the host, zig's libraries, a PostgreSQL server."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.scheduling.collected import COLLECTED
from tests.scheduling.crashed_workers import pytest_xdist_make_scheduler
from tests.scheduling.longest_first import longest_first
from tests.shared_cache import ZIG

if TYPE_CHECKING:
    from tests.servers.postgres import Server


# pytest finds the hook under this name.
__all__ = ["pytest_xdist_make_scheduler"]

# No test fails by chance: the examples are those of the run before, however busy the machine is.
# `--hypothesis-profile random` draws others.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", settings.get_profile("random"), derandomize=True)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files are handed out first; the names of all tests are kept."""
    config.stash[COLLECTED] = frozenset(item.nodeid for item in items)
    items[:] = longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What imports and the collection make stays: it is not looked through for garbage meanwhile."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there now stays to the end: garbage collections need not look through it again and again."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Original runtimes run in this process: see `tests.deployments.references`.

    A file of tests whose models may crash them has an empty fixture of this name.
    """
    from tests.deployments.references import run_here

    run_here(monkeypatch)


@pytest.fixture
def own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model files are read without a worker: see `tests.deployments.own_files`."""
    from tests.deployments.own_files import read_here

    read_here(monkeypatch)


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons of whole models are short: see `tests.deployments.short_rounds`."""
    from tests.deployments.short_rounds import shorten

    shorten(monkeypatch)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server, for the tests that ask for one."""
    from tests.servers.postgres import Server

    made = Server()
    yield made
    made.remove()


@pytest.fixture
def shared(server: Server) -> str:
    """The URL of an empty database that hosts share."""
    return server.url(server.database())


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Where a store of each kind of database may be made."""
    if request.param == "sqlite":
        return tmp_path / "stores" / "records.sqlite"
    url: str = request.getfixturevalue("shared")
    return url
