"""Boards of other hosts are tuned while one part after the other is killed: nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from host.records import Record, RecordStore
from tests.integration.test_tuning import perceptron, references
from tests.ray_cluster import ROOT, RayCluster
from tests.servers.postgres import Server

# Of one wait. The hosts of a cluster take a minute to start where the machine does other work as well.
_LIMIT_S = 600.0

pytestmark = pytest.mark.timeout(1500)


class Command:
    """`sdk tune` in a process of its own, on the hosts of a cluster.

    Args:
        cluster: the cluster.
        folder: for the model, and for what the command says.
        boards: to measure on.
        shared: URL of the records.
        trials: in all.
        options: more of the command's.
    """

    def __init__(
        self,
        cluster: RayCluster,
        folder: Path,
        boards: tuple[str, ...],
        shared: str,
        trials: int,
        *options: str,
    ) -> None:
        self._shared = shared
        self._log = folder / f"said-{time.monotonic_ns()}"
        model = folder / "net.onnx"
        if not model.exists():
            perceptron(model)
        command = [sys.executable, "-m", "sdk.cli", "tune", str(model), "--device", ",".join(boards)]
        command += ["--trials", str(trials), "--threads", "1", "--no-train", "--records", shared]
        command += ["--engine", cluster.engine, *options]
        environment = {**cluster.environment, **{k: v for k, v in os.environ.items() if k.startswith("XDG_")}}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=ROOT)

    def records(self) -> list[Record]:
        with RecordStore(self._shared) as store:
            return list(store)

    def at(self, count: int, act: Callable[[], object]) -> int:
        """Do something when so many programs are measured; returns how many there were."""
        until = time.monotonic() + _LIMIT_S
        while len(found := self.records()) < count:
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            # To open the database takes 20 ms of processor, which the hosts would lack.
            time.sleep(0.5)
        act()
        return len(found)

    def ended(self) -> int:
        return self._process.wait(_LIMIT_S)

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def once(some: list[Record]) -> None:
    """Every program is recorded once, but for those of which a later batch makes sure."""
    counted = Counter((one.candidate_key, one.origin.batch) for one in some)
    assert not [key for key, count in counted.items() if count > 1]
    assert not [one for one in some if "went away" in one.failure], "a program is blamed for a host"


def test_boards_of_other_hosts_are_tuned_whatever_is_killed(
    tmp_path: Path, cluster: RayCluster, boards: tuple[str, str], server: Server, shared: str
) -> None:
    trials = 30
    command = Command(cluster, tmp_path, boards, shared, trials)
    try:
        # In a measurement or between two of them.
        command.at(2, lambda: kill_when_there(cluster, "ray::Hosted"))
        command.at(8, lambda: kill_when_there(cluster, "ray::run_job", "ray::IDLE"))

        def every_host() -> None:
            # With its head, the cluster: the command waits for another one at the same place.
            cluster.kill(0)
            cluster.kill(1)
            cluster.start(0, 1)

        command.at(11, every_host)

        def restart() -> None:
            server.kill()
            threading.Timer(0.5, server.start).start()

        command.at(15, restart)
        time.sleep(1.5)

        def power_cut() -> None:
            cluster.kill(1)
            cluster.start(1)

        command.at(19, power_cut)
        assert command.ended() == 0, command.said()
    finally:
        command.end()
    kept = command.records()
    once(kept)
    assert len(kept) == trials + references(kept)
    # Both boards have measured, and the one whose host was away did again.
    assert {one.origin.device for one in kept} == set(boards)


def test_a_board_is_watched_by_the_host_that_reaches_it_and_refused_where_none_does(
    tmp_path: Path, cluster: RayCluster, boards: tuple[str, str], shared: str
) -> None:
    """Its reference programs run there: no port of this machine leads to it. Both commands run at once."""
    unreached = Command(cluster, tmp_path, ("pi5",), shared, 4)
    try:
        _watch(cluster, boards, shared)
        assert unreached.ended() == 2
    finally:
        unreached.end()
    assert "no host of the cluster reaches pi5; boards of the cluster are: replay:" in unreached.said()


@pytest.mark.long
def test_two_commands_tune_the_same_model_at_once(
    tmp_path: Path, cluster: RayCluster, boards: tuple[str, str], shared: str
) -> None:
    trials = 8
    commands = [Command(cluster, tmp_path, (board,), shared, trials) for board in boards]
    try:
        assert [one.ended() for one in commands] == [0, 0], [one.said() for one in commands]
    finally:
        for one in commands:
            one.end()
    kept = commands[0].records()
    for board in boards:
        own = [one for one in kept if one.origin.device == board]
        once(own)
        assert len(own) >= trials


def _watch(cluster: RayCluster, boards: tuple[str, str], shared: str) -> None:
    command = [sys.executable, "-m", "sdk.cli", "watch", boards[1], "--once", "--engine", cluster.engine]
    command += ["--records", shared, "-o", "json"]
    places = {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    done = subprocess.run(
        command,
        env={**cluster.environment, **places},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = json.loads(done.stdout)
    assert row["device"] == boards[1] and row["status"] == "begun"


def kill_when_there(cluster: RayCluster, *named: str) -> None:
    until = time.monotonic() + 30.0
    while not any(cluster.kill_one(one) for one in named):
        assert time.monotonic() < until, f"nobody is called {named}"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
