"""A board that another host reaches, by an actor: what is asked of it here happens there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.build import KernelCache, build_kernel_library, target_for
from host.compile.device_profile import profile_of
from host.errors import DeviceError, MeasureError
from host.execution import HostLost, LocalEngine
from host.model import DeviceProfile
from host.schedules import scheduled_function
from host.transport import Device, connect
from host.transport.hosted import HostedBoard, connect_hosted
from host.tuning.runners.connection import BoardAccess
from host.tuning.runners.hosted import HostedConnection, MeasuringBoard
from host.tuning.runners.reach import HostedReach
from host.tuning.tasks import TuningTask
from research.collection.collect import ROUNDS
from research.collection.hosted import HostedTimer, times_there
from research.evaluation.bench import arguments_of
from tests.integration.small_models import convnet
from tests.unit.tuning.simulated import dense_space

BOARD = f"replay:{Path(__file__).parents[3] / 'examples' / 'replay' / 'small_board.toml'}"


class Host:
    """An actor whose host can end; what comes after it knows nothing of the one before.

    Args:
        make: makes the object of the actor.
    """

    def __init__(self, make: Any) -> None:
        self._make = make
        self._actor = LocalEngine().actor(make, BOARD)
        self.ended = False

    def call(self, method: str, *arguments: Any) -> Any:
        if self.ended:
            raise HostLost("a host of the cluster is gone (it was killed)")
        return self._actor.call(method, *arguments)

    def begin(self, method: str, *arguments: Any) -> Any:
        return self._actor.begin(method, *arguments)

    def end(self) -> None:
        self.ended = True

    def restart(self) -> None:
        # What the killed one had open is closed by the system.
        self._actor.call("close", 1)
        self._actor = LocalEngine().actor(self._make, BOARD)
        self.ended = False


@pytest.fixture
def host() -> Host:
    return Host(MeasuringBoard)


@pytest.fixture
def device(host: Host) -> Iterator[Device]:
    with connect_hosted(host, BOARD, 0.0) as found:
        yield found


@pytest.fixture
def library(tmp_path: Path, device: Device) -> Path:
    """A program of the small product."""
    space = dense_space()
    [values] = [{one.name: one.choices[0] for one in space.decisions}]
    function = scheduled_function(space.apply(space.candidate(values, "random")))
    path = tmp_path / "dense.so"
    board = profile_of(device, 1, lambda text: None).board
    build_kernel_library({"dense": function}, path, target_for(board), KernelCache())
    return path


def connection(host: Host, device: Device, made: list[Device]) -> HostedConnection:
    profile: DeviceProfile = profile_of(device, 1, lambda text: None)

    def again() -> Device:
        made.append(connect_hosted(host, BOARD, 0.0))
        return made[-1]

    return HostedConnection(BoardAccess(BOARD, profile, again, device, keep=True), host)


def test_a_hosted_device_is_the_device(device: Device, tmp_path: Path) -> None:
    with connect(BOARD) as straight:
        assert device.describe() == straight.describe()
        assert device.sensor()["source"] == straight.sensor()["source"]
        assert device.place == straight.place
    model = convnet(tmp_path / "net.onnx")
    given = [np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)]
    with device.open_session("onnxruntime", 1) as session, connect(BOARD) as straight:
        session.load(model)
        [ours] = session.run(given)
        with straight.open_session("onnxruntime", 1) as other:
            other.load(model)
            [theirs] = other.run(given)
    np.testing.assert_array_equal(ours, theirs)
    # Nothing of a session stays.
    with pytest.raises(DeviceError):
        session.run(given)


def test_kernels_are_timed_by_the_host(host: Host, device: Device, library: Path) -> None:
    measuring = connection(host, device, [])
    task = TuningTask(dense_space(), 1e-5)
    assert measuring.measure(task, library).median_s > 0
    broken = library.with_name("broken.so")
    broken.write_bytes(b"no library")
    with pytest.raises(MeasureError, match="dense cannot be measured"):
        measuring.measure(task, broken)
    assert measuring.measure(task, library).median_s > 0, "the session goes on"
    # Energy too, where that is asked for.
    assert measuring.measure(task, library).energy.gross_j is None
    program = task.space.candidate({one.name: one.choices[0] for one in task.space.decisions}, "random")
    energy = measuring.measure_energy(task, library, program).energy
    assert energy.kind == "simulated" and energy.gross_j > 0 and energy.trials == 2
    measuring.close()
    with pytest.raises(DeviceError, match="timed by that host"):
        device.forward(1)


class LaterAnswers(Host):
    """Calls that are begun are done by threads, as those of another process are."""

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        self._threads = ThreadPoolExecutor()
        self.begun: list[bytes] = []

    def begin(self, method: str, *arguments: Any) -> Any:
        self.begun.append(arguments[-1])
        return self._threads.submit(self.call, method, *arguments)


def test_the_program_that_follows_is_there_before_the_answer(
    device: Device, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is begun while the first one is measured; its answer is taken when it is asked for."""
    monkeypatch.setattr("host.tuning.runners.hosted._BEGUN_S", 0.0)
    host = LaterAnswers(MeasuringBoard)
    made: list[Device] = []
    other = library.with_name("other.so")
    other.write_bytes(library.read_bytes() + b"other")
    task = TuningTask(dense_space(), 1e-5)
    device.close()
    with connect_hosted(host, BOARD, 0.0) as there:
        measuring = connection(host, there, made)
        measuring.follow(task, other)
        assert measuring.measure(task, library).median_s > 0
        assert host.begun == [library.read_bytes(), other.read_bytes()]
        assert measuring.measure(task, other).median_s > 0
        assert len(host.begun) == 2, "it was there already"
        # One that comes after all is not the one that was named: it is sent itself.
        measuring.follow(task, other)
        measuring.measure(task, library)
        measuring.withdraw()
        assert measuring.measure(task, library).median_s > 0
        # What is with the board when everything ends is cut off.
        measuring.follow(task, other)
        measuring.measure(task, library)
        measuring.close()


def test_a_host_that_ends_is_a_lost_board_and_comes_back(host: Host, device: Device, library: Path) -> None:
    made: list[Device] = []
    measuring = connection(host, device, made)
    task = TuningTask(dense_space(), 1e-5)
    measuring.measure(task, library)
    host.end()
    with pytest.raises(HostLost, match="a host of the cluster is gone"):
        measuring.measure(task, library)
    with pytest.raises(DeviceError, match=r"agent went away \(a host of the cluster"):
        device.state()
    assert device.broken
    assert measuring.drop() == ""
    with pytest.raises(HostLost):
        measuring.connect()
    host.restart()
    measuring.connect()
    assert measuring.measure(task, library).median_s > 0
    assert len(made) == 1 and measuring.device is made[0]
    made[0].close()


def test_a_connection_of_before_is_refused_when_there_is_another(host: Host, device: Device) -> None:
    with connect_hosted(host, BOARD, 0.0) as later:
        with pytest.raises(DeviceError, match="its host has connected anew"):
            device.state()
        # And closing it leaves the other one as it is.
        device.close()
        assert later.state()


def test_a_board_that_is_cut_off_fails_at_once(device: Device) -> None:
    device.agent.stop()
    with pytest.raises(DeviceError, match="the device agent went away"):
        device.state()


def test_an_unknown_board_is_the_hosts_to_refuse() -> None:
    from host.errors import UnknownDeviceError

    with pytest.raises(UnknownDeviceError):
        connect_hosted(LocalEngine().actor(HostedBoard, "nobody"), "nobody", 0.0)


def test_programs_of_a_collection_are_timed_on_its_host(device: Device) -> None:
    space = dense_space()
    values = {one.name: one.choices[0] for one in space.decisions}
    function = scheduled_function(space.apply(space.candidate(values, "random")))
    with HostedReach(LocalEngine()) as reach, reach.connect(BOARD) as there:
        profile = profile_of(there, 1, lambda text: None)
        named = dict.fromkeys(("kernel_0", "kernel_1"), function)
        times = HostedTimer(reach, there, profile).times(space, named, lambda text: None)
    with connect(BOARD) as straight:
        broken = {"kernel_0": b"no library"}
        found, failures = times_there(straight, broken, arguments_of(space.task), profile)
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys(named, ROUNDS)
    assert min(map(min, times.values())) > 0
    assert found == {"kernel_0": []} and "kernel_0 cannot be measured" in failures[0]
