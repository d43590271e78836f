"""Sessions on a real agent: models, kernels, and executors that die."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from host.compare.entrants import ratio_between
from host.compare.runner import Effort, compare_sessions
from host.errors import BundleError, DeviceError, EngineError, MeasureError, SessionLost, UnknownDeviceError
from host.measure.kernels import KernelRunner, measure_kernel
from host.transport import connect
from host.transport.local import connect_local
from host.transport.wire import Connection
from tests.integration.agent.conftest import resident_mb, write_bundle, write_manifest

MATMUL = [((4, 64), "float32"), ((64, 32), "float32"), ((4, 32), "float32")]
ONE = [((4,), "float32")]


@pytest.fixture
def session(device, bundle):
    with device.open_session("tvm") as session:
        session.load(bundle)
        yield session


def inputs_of(golden):
    return [golden["x"], golden["unused"]]


def tasks(pid):
    return list(Path(f"/proc/{pid}/task").glob("*/stat"))


@pytest.mark.parametrize("share_files", [True, False])
def test_a_bundle_runs_and_its_outputs_are_right(store_dir, bundle, golden, share_files):
    with connect_local(store_dir, share_files=share_files) as device, device.open_session("tvm") as session:
        signature = session.load(bundle)
        assert [entry["name"] for entry in signature["inputs"]] == ["x", "unused"]
        for factor in (1.0, -1.0):
            z, s = session.run([golden["x"] * np.float32(factor), golden["unused"]])
            if factor == 1.0:
                np.testing.assert_allclose(z, golden["z"], rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(s, golden["s"], rtol=1e-4)
            else:
                assert not np.allclose(z, golden["z"])


def test_a_model_is_measured_on_the_device(session, golden):
    measurement = session.measure(inputs_of(golden), min_repeats=5, min_time_s=0.05, warmup_s=0.01)
    assert measurement.n >= 5 and all(time > 0 for time in measurement.times_s)
    assert measurement.threads == 1
    assert measurement.state_before["clocks_hz"] and measurement.state_after["time_s"] > 0
    if measurement.energy.kind == "unavailable":
        assert measurement.energy.gross_j is None and measurement.energy.source


def test_kernels_are_timed_in_place(session, golden):
    profile = session.profile(inputs_of(golden), runs=3)
    assert profile["matmul"].calls == 1 and profile["matmul"].seconds > 0
    assert {"matmul", "relu", "sum"} <= set(profile)


def test_intermediate_values_lead_to_the_first_wrong_kernel(device, session, golden, tmp_path):
    calls = list(session.intermediates(inputs_of(golden)))
    assert [call.kernel for call in calls] == ["matmul", "relu", "sum"]
    np.testing.assert_allclose(calls[1].values[-1], golden["z"], rtol=1e-4, atol=1e-5)
    with device.open_session("tvm") as wrong:
        wrong.load(write_bundle(tmp_path / "wrong", scale=1.5))
        values = next(iter(wrong.intermediates(inputs_of(golden)))).values
        assert not np.allclose(values[-1], calls[0].values[-1])


def test_intermediate_values_come_in_pieces(session, golden, monkeypatch):
    whole = list(session.intermediates(inputs_of(golden)))
    monkeypatch.setattr("host.transport.session._CHUNK_BYTES", 1)
    pieces = list(session.intermediates())
    assert [call.index for call in pieces] == [0, 1, 2]
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(one.values[-1], other.values[-1])


def memory_of(pid, name):
    """What /proc says of the pages of a process that are a file's, in kB, by field."""
    sums, inside = {}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            inside = line.endswith(f"/{name}")
        elif inside and rest[-1] == "kB":
            sums[first[:-1]] = sums.get(first[:-1], 0) + int(rest[0])
    return sums


def test_weights_are_pages_of_their_file(session, golden):
    """They are not copied into the executor's own memory, whatever runs."""
    session.run(inputs_of(golden))
    weights = memory_of(session.pid, "params.bin")
    assert weights["Rss"] >= 64 * 32 * 4 // 1024
    # Pages that were just written are dirty, but the file's. One that the executor wrote to would be its own.
    assert weights["Anonymous"] == 0


def test_a_kernel_is_measured_over_rpc(device, bundle):
    with device.open_session("tvm") as session:
        measurement = measure_kernel(
            session, bundle / "lib.so", "matmul", MATMUL, repeat=4, min_repeat_ms=1.0
        )
        assert measurement.n == 4 and measurement.median_s > 0
        with pytest.raises(MeasureError, match="no function 'nothing'"):
            measure_kernel(session, bundle / "lib.so", "nothing", MATMUL)
        with pytest.raises(MeasureError, match="kernel matmul"):
            measure_kernel(session, bundle / "lib.so", "matmul", MATMUL[:2])
        flushed = measure_kernel(session, bundle / "lib.so", "matmul", MATMUL, repeat=3, flush_bytes=1 << 20)
        assert flushed.n == 3


def test_frames_and_rpc_share_an_executor(session, bundle, golden):
    with KernelRunner(session) as runner:
        runner.measure(bundle / "lib.so", "relu", [((4, 32), "float32")] * 2, repeat=1)
        z, _ = session.run(inputs_of(golden))
        runner.measure(bundle / "lib.so", "relu", [((4, 32), "float32")] * 2, repeat=1)
    np.testing.assert_allclose(z, golden["z"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("crash", "crashed with SIGSEGV"),
        ("quit", "ended with code 3"),
        ("spin", "worked for longer than its limit of 1 s"),
        ("hang", "worked for longer than its limit of 1 s"),
        ("eat", "its limit is 300 MB"),
    ],
)
def test_an_executor_that_fails_is_replaced(device, faults, kernel, reason):
    # A busy machine takes its time to crash; only what hangs is to be cut off.
    limit_s = 1.0 if kernel in ("spin", "hang") else 60.0
    with (
        device.open_session("tvm", time_limit_s=limit_s, memory_limit_bytes=300_000_000) as session,
        KernelRunner(session) as runner,
    ):
        first = session.pid
        with pytest.raises(SessionLost, match=f"kernel {kernel}: the tvm executor .*{reason}"):
            runner.measure(faults, kernel, ONE)
        assert runner.measure(faults, "fine", ONE, repeat=1).n == 1
        assert session.pid != first


def test_a_model_lost_in_a_crash_has_to_be_loaded_again(session, bundle, faults, golden):
    with KernelRunner(session) as runner, pytest.raises(SessionLost):
        runner.measure(faults, "crash", ONE)
    with pytest.raises(DeviceError, match="no model is loaded"):
        session.run(inputs_of(golden))
    session.load(bundle)
    np.testing.assert_allclose(session.run(inputs_of(golden))[0], golden["z"], rtol=1e-4, atol=1e-5)


def test_a_crash_takes_no_other_session_with_it(device, session, faults, golden):
    with device.open_session("tvm") as other:
        with pytest.raises(SessionLost):
            measure_kernel(other, faults, "crash", ONE)
        assert session.run(inputs_of(golden))[0].shape == (4, 32)


def test_sessions_are_compared_with_the_others_stopped(device, bundle, golden):
    with device.open_session("tvm") as one, device.open_session("tvm") as two:
        for session in (one, two):
            session.load(bundle)
        effort = Effort(rounds=6, round_s=0.01, warmup_s=0.01)
        result = compare_sessions({"one": one, "two": two}, inputs_of(golden), effort)
        assert [one.reason for one in result.values()] == ["", ""]
        ratio = ratio_between(result["one"], result["two"])
        assert 0 < ratio.low <= ratio.value <= ratio.high
        assert one.run(inputs_of(golden))[0].shape == (4, 32)


def test_a_paused_executor_is_stopped_and_its_time_does_not_count(device, bundle, golden):
    with device.open_session("tvm", time_limit_s=4.0) as session:
        session.load(bundle)
        session.set_inputs(inputs_of(golden))
        done = threading.Thread(
            target=lambda: session.measure(min_time_s=1.5, warmup_s=0.0, max_repeats=10**6)
        )
        done.start()
        threading.Event().wait(0.5)
        session.pause()
        states = [task.read_text().rpartition(")")[2].split()[0] for task in tasks(session.pid)]
        assert states and set(states) == {"T"}
        threading.Event().wait(4.0)
        session.resume()
        done.join()
        assert session.run(inputs_of(golden))[0].shape == (4, 32)


def test_idle_memory_is_small(device, bundle):
    agent = device.agent.process.pid
    with device.open_session("tvm") as session:
        assert resident_mb(session.pid) <= 60
        assert resident_mb(agent) <= 30


def test_a_wrong_token_is_refused(device):
    with pytest.raises(DeviceError, match="wrong secret"):
        Connection(device.agent.port, "guess", "local")
    assert device.describe().cores >= 1


def test_a_wrong_key_is_refused(session):
    port = session.port
    with pytest.raises(DeviceError, match="wrong secret"):
        Connection(port, "guess", "local")
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        key = b"client:guess"
        stranger.sendall(struct.pack("<ii", 0xFF271, len(key)) + key)
        assert struct.unpack("<i", stranger.recv(4)) == (0xFF271 + 2,)


def test_garbage_disturbs_nobody(session, golden):
    for data in (
        b"GET / HTTP/1.0\r\n\r\n",
        b"\0\0\0\2{}",
        b"\xff" * 64,
        struct.pack("<ii", 0xFF271, 1 << 30),
    ):
        with socket.create_connection(("127.0.0.1", session.port)) as stranger:
            stranger.sendall(data)
    assert session.run(inputs_of(golden))[0].shape == (4, 32)


def test_a_session_has_one_client(session, golden):
    with pytest.raises(DeviceError, match="another client is connected"):
        Connection(session.port, session.key, "local")
    assert session.run(inputs_of(golden))[0].shape == (4, 32)


def test_a_device_in_use_refuses_another_client(device, session):
    other = Connection(device.agent.port, device.agent.token, "local")
    assert other.request({"command": "describe"})[0]["cores"] >= 1
    request = {"command": "session.open", "engine": "tvm", "threads": 1, "time_limit_s": 10}
    with pytest.raises(DeviceError, match="the device is in use"):
        other.request(request)
    session.close()
    assert other.request(request)[0]["port"] > 0
    other.close()


def test_sessions_end_with_their_client(device):
    other = Connection(device.agent.port, device.agent.token, "local")
    other.request({"command": "session.open", "engine": "tvm", "threads": 1, "time_limit_s": 10})
    other.close()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with device.open_session("tvm"):
                return
        except DeviceError:
            time.sleep(0.05)
    pytest.fail("the session outlived its client")


def test_rpc_cannot_leave_its_folder(session, tmp_path):
    remote = session.rpc()
    target = tmp_path / "escaped"
    for name in (str(target), "../escaped", "../../escaped"):
        with pytest.raises(Exception, match="outside the session's folder"):
            remote.upload(bytearray(b"x"), name)
    assert not target.exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "no manifest.json"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "is not valid JSON"),
        (
            lambda folder: (folder / "manifest.json").write_text('{"schema": "edgetlm.bundle/9"}'),
            "edgetlm.bundle/9",
        ),
        (lambda folder: (folder / "lib.so").unlink(), r"it lacks lib\.so"),
        (lambda folder: (folder / "params.bin").write_bytes(b"short"), r"params\.bin does not match"),
        (lambda folder: (folder / "params.bin").write_bytes(b""), r"params\.bin does not match"),
        (lambda folder: (folder / "manifest.sig").unlink(), "it is not signed"),
    ],
)
def test_damaged_bundles_are_named(device, bundle, tmp_path, damage, message):
    import shutil

    folder = tmp_path / "damaged"
    shutil.copytree(bundle, folder)
    damage(folder)
    with device.open_session("tvm") as session, pytest.raises(BundleError, match=message):
        session.load(folder)


def test_a_library_that_is_none_is_an_error_of_the_engine(device, bundle, tmp_path):
    import shutil

    folder = tmp_path / "damaged"
    shutil.copytree(bundle, folder)
    (folder / "lib.so").write_bytes(b"\x7fELF nothing")
    write_manifest(folder)
    with device.open_session("tvm") as session, pytest.raises(EngineError, match="tvm cannot load"):
        session.load(folder)


def test_inputs_that_do_not_fit_are_named(session, golden):
    with pytest.raises(DeviceError, match="input x is float64"):
        session.run([golden["x"].astype("float64"), golden["unused"]])
    with pytest.raises(DeviceError, match="1 inputs given, the model takes 2"):
        session.run([golden["x"]])


def test_unknown_engines_and_devices_are_named(device):
    with pytest.raises(DeviceError, match="no engine abacus"):
        device.open_session("abacus")
    with pytest.raises(UnknownDeviceError, match="no device is called 'nowhere'"):
        connect("nowhere")


def test_an_interpreter_that_does_not_exist_is_named(device):
    with pytest.raises(SessionLost, match="cannot start /nowhere/python"):
        device.open_session("tvm", python="/nowhere/python")


def test_a_closed_session_says_so(device, bundle):
    session = device.open_session("tvm")
    session.close()
    session.close()
    with pytest.raises(SessionLost, match="session is closed"):
        session.load(bundle)
