"""Every test has caches, a device store and a working directory of its own, and leaves no process.

Of the caches, that of kernels is the same for all tests of a run: what LLVM has compiled for one is not
compiled again for the next one. Another run, of a tree that may compile otherwise, begins with an empty one.
What is slow to make for boards (root file systems, executors, wheels) is kept by its content: see
`tests.shared_cache`.

What takes a deployment the most time is less: see `tests.deployments`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.shared_cache import share_with
from tests.signing import trust


@pytest.fixture(scope="session")
def kernels_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled kernels of this run, of all its processes."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kernels"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, kernels_of_this_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's is read or written."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    work.mkdir()
    share_with(home / "cache")
    (home / "cache" / "edgetlm" / "kernels").symlink_to(kernels_of_this_run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("EDGETLM_STORE", str(home / "store"))
    monkeypatch.chdir(work)


@pytest.fixture(autouse=True)
def rounds(short_rounds: None) -> None:
    """Comparisons of whole models are short."""


@pytest.fixture(autouse=True)
def model_files(own_files: None) -> None:
    """Model files are read without a worker."""


@pytest.fixture
def trusted_here(own_places: None) -> Path:
    """The file of keys that applications of this machine go by, with the tests' own key in it."""
    path = Path(os.environ["EDGETLM_STORE"], "trust.json")
    trust(path)
    return path


@pytest.fixture(autouse=True)
def no_stray_process() -> Iterator[None]:
    """Fails a test after which a child of ours still runs."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    after = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    gone, alive = psutil.wait_procs(after, timeout=60)
    assert not alive, [child.cmdline() for child in alive]
    del gone
