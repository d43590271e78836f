"""Where the product keeps what it makes."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from device_agent.errors import AgentError
from device_agent.store.agent_folder import default_root
from host import keys
from host.errors import UserError
from host.places import cache_root, user_name, zig_cache
from tests import shared_cache


def test_zig_keeps_its_libraries_where_it_does_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "given"))
    assert zig_cache(tmp_path / "cache") == tmp_path / "given"
    # An empty one is none.
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "")
    assert zig_cache(tmp_path / "cache") == tmp_path / "cache" / "zig"
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR")
    assert zig_cache(tmp_path / "cache") == tmp_path / "cache" / "zig"


def test_executors_of_the_tests_share_the_libraries_of_zig_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each C++ library takes a core most of a minute: the examples in C++ are linked with the same."""
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "elsewhere")
    found: list[str] = []

    def executor_for(architecture: str, jobs: int) -> Path:
        found.append(os.environ["ZIG_GLOBAL_CACHE_DIR"])
        return Path(architecture)

    monkeypatch.setattr(shared_cache, "executor_for", executor_for)
    shared_cache.main(["--jobs", "1"])
    assert found == [str(shared_cache.ZIG)] * len(shared_cache.ARCHITECTURES)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that the system does not know, as in a container that was started with a number."""
    for name in (
        "EDGETLM_HOME",
        "HOME",
        "LOGNAME",
        "USER",
        "LNAME",
        "USERNAME",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
    ):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("stranger")
def test_a_user_without_a_name_signs_by_number(tmp_path: Path) -> None:
    assert user_name() == str(os.geteuid())
    assert keys.host_key(tmp_path).name.startswith(f"{os.geteuid()}@")


@pytest.mark.usefixtures("stranger")
def test_a_user_without_a_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no home: set HOME to a folder"):
        cache_root()
    with pytest.raises(AgentError, match="no home: set EDGETLM_HOME"):
        default_root()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "edgetlm"
