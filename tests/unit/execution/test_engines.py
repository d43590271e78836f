"""Engines by their names, the local one, and the cores of a host."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from host.errors import BuildError, UserError
from host.execution import open_engine
from host.execution.cores import divided
from host.execution.ray_work import Hosted, run_job
from host.execution.same_version import version_here
from host.options.engine import check_engine, head_of


@pytest.mark.parametrize("name", ["local", "ray", "ray://head", "ray://10.0.0.2:7001", "ray://a-b.example:1"])
def test_names_of_engines(name: str) -> None:
    check_engine(name)


@pytest.mark.parametrize(
    "name",
    ["", "Ray", "ray://", "ray://:6379", "ray://head:", "ray://head:0", "ray://head:65536", "ray://a b:1"],
)
def test_what_is_no_engine_is_refused_with_what_to_type(name: str) -> None:
    with pytest.raises(UserError, match="use local, ray, or ray://HOST:PORT"):
        check_engine(name)


def test_the_usual_port_of_a_head_need_not_be_typed() -> None:
    assert head_of("ray://head") == "head:6379"
    assert head_of("ray://head:1") == "head:1"
    assert head_of("ray") == head_of("local") == ""


def fails(text: str) -> str:
    raise BuildError(text)


class Counter:
    """Counts from a number."""

    def __init__(self, first: int) -> None:
        self._next = first

    def take(self) -> int:
        self._next += 1
        return self._next - 1


def test_the_local_engine_does_work_where_it_is_asked_to() -> None:
    engine = open_engine("local")
    assert not engine.remote
    assert engine.submit(os.getpid).result() == os.getpid()
    pending = engine.submit(fails, "kernel a")
    with pytest.raises(BuildError, match="kernel a"):
        pending.result()
    actor = engine.actor(Counter, 3)
    assert [actor.call("take"), actor.begin("take").result()] == [3, 4]
    value = object()
    assert engine.share(value) is value
    engine.close()


@pytest.mark.parametrize(
    ("cores", "kept", "builds", "boards"),
    [
        ({3}, 1, {3}, {3}),
        ({0, 1}, 1, {0}, {1}),
        ({0, 1}, 4, {0}, {1}),
        ({2, 5, 6, 7}, 2, {2, 5}, {6, 7}),
        ({0, 1, 2}, 0, {0, 1}, {2}),
    ],
)
def test_builds_and_boards_share_no_core_where_there_are_two(
    cores: set[int], kept: int, builds: set[int], boards: set[int]
) -> None:
    assert divided(frozenset(cores), kept) == (frozenset(builds), frozenset(boards))


def imported_by(*lines: str) -> set[str]:
    """The modules that a process has imported after these lines."""
    code = [*lines, "import json, sys", "print(json.dumps(sorted(sys.modules)))"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_ray_is_imported_for_nobody_who_does_not_ask_for_it() -> None:
    local = imported_by(
        "import host.commands.tune, host.deploy.fleet, host.tuning.runners.hosted, host.transport.hosted",
        "from host.tuning.runners.reach import open_reach",
        "open_reach('local', ('local',)).close()",
    )
    assert "host.execution.local" in local
    assert not {name for name in local if name == "ray" or name.startswith("ray.")}
    assert "host.execution.ray_engine" not in local
    # It is a hundred modules and more where it is asked for: that is what the others are spared.
    ray = imported_by("import host.execution.ray_engine, ray")
    assert len([name for name in ray if name.startswith("ray.")]) > 100


def test_a_host_with_another_version_refuses_the_work_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("host.execution.ray_work.pin", lambda to_boards: None)
    kept = pickle.dumps((version_here(), "append", (1,)))
    hosted = Hosted(list, False)
    assert pickle.loads(hosted.call(kept)) is None
    assert pickle.loads(hosted.call(pickle.dumps((version_here(), "copy", ())))) == [1]
    assert run_job(version_here(), len, [1, 2]) == 2
    for work in (
        lambda: hosted.call(pickle.dumps(("edgetlm 0.0.9", "append", (1,)))),
        lambda: run_job("edgetlm 0.0.9", len, []),
    ):
        with pytest.raises(UserError, match=r"the host .* has edgetlm .*, and this command edgetlm 0\.0\.9:"):
            work()


def test_what_builds_and_measures_goes_without_torch_which_others_can_have() -> None:
    before = "import host.execution.without_torch, host.tuning.runners.hosted, host.build"
    light = imported_by(before)
    assert "tvm" in light and "torch" not in light
    both = imported_by(before, "import host.tlm.model.network")
    assert {"tvm", "torch"} <= both
