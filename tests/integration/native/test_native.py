"""The native executor by itself: its size and memory, what it refuses, sensors, and its build."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from host.errors import PayloadError
from host.payload import native
from host.payload.native import native_executor
from tests.integration.agent.conftest import link, resident_mb
from tests.integration.native.process import KEY, Executor
from tests.shared_cache import FOLDER
from tests.signing import reseal

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)

METER = """
import json, sys, time
windows, asked = 0, []
for line in sys.stdin:
    request = json.loads(line)
    asked.append(request)
    what = request["do"]
    answer = {"probe": {"unavailable": None}, "idle": {"mean_w": 1.5, "std_w": 0.1}}.get(what)
    if what == "begin":
        answer = {"time_s": time.monotonic(), "window_s": 0.05}
    if what == "end":
        windows += 1
        first = windows == 1
        record = {"kind": "measured", "gross_j": 2.0, "source": "test", "boundary": "board"}
        answer = {"energy": record, "keep": not first, "again": first, "throttled": first, "asked": asked}
        answer.update(state_before={"time_s": 1.0}, state_after={"time_s": 2.0})
    print(json.dumps(answer), flush=True)
"""

HALVES = """
#include <builtin_fp16.h>
extern "C" void convert(const float *values, uint16_t *halves, float *back, int count) {
    for (int i = 0; i < count; ++i) {
        halves[i] = __truncXfYf2__<float, uint32_t, 23, uint16_t, uint16_t, 10>(values[i]);
        back[i] = __extendXfYf2__<uint16_t, uint16_t, 10, float, uint32_t, 23>(halves[i]);
    }
}
"""


@pytest.fixture
def executor(executable: Path, tmp_path: Path):
    with Executor([str(executable)], tmp_path / "session") as running:
        yield running


def inputs_of(golden):
    return [golden["x"], golden["unused"]]


def test_it_is_small(executable, executor, bundle, golden):
    assert executable.stat().st_size <= 8_000_000
    assert resident_mb(executor.pid) <= 10
    assert executor.ask("load", path=str(bundle))[0]["ok"]
    _, outputs = executor.ask("run", inputs_of(golden))
    np.testing.assert_allclose(outputs[0], golden["z"], rtol=1e-4, atol=1e-5)
    assert resident_mb(executor.pid) <= 10


def test_loading_and_the_first_run_after_it_are_timed(executor, bundle, golden):
    for _ in range(2):
        assert executor.ask("load", path=str(bundle))[0]["load_s"] > 0
        assert executor.ask("run", inputs_of(golden))[0]["first_run_s"] > 0
        assert "first_run_s" not in executor.ask("run")[0]


@pytest.mark.parametrize(
    ("specification", "kind", "message"),
    [
        ({"engine": "abacus"}, "bad_request", "no engine abacus"),
        ({"engine": "onnxruntime"}, "bad_request", "its engine is tvm"),
        ({"key": None}, "bad_request", "key is missing"),
        ({"key": ""}, "bad_request", "needs a key"),
        ({"trust_file": None}, "bad_request", "trust_file is missing"),
        ({"threads": "many"}, "bad_request", "whole number"),
        ({"workdir": "/nowhere/at/all"}, "internal", "is missing"),
    ],
)
def test_a_specification_that_it_cannot_serve_is_refused(executable, tmp_path, specification, kind, message):
    with Executor([str(executable)], tmp_path / "session", **specification) as running:
        error = running.announced["error"]
        assert error["kind"] == kind and message in error["message"]
        assert running.wait() == 1


def test_it_ends_where_its_parent_is_another(executable, tmp_path):
    with Executor([str(executable)], tmp_path / "session", parent_pid=1) as running:
        assert running.announced == {} and running.wait() == 1


def test_it_ends_with_its_parent(executable, tmp_path):
    program = (
        "import os, subprocess, sys, json\n"
        "p = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "fields = dict(json.loads(sys.argv[2]), parent_pid=os.getpid())\n"
        "p.stdin.write((json.dumps(fields) + '\\n').encode()); p.stdin.flush()\n"
        "print(p.pid, json.loads(p.stdout.readline())['port'], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    fields = {"engine": "tvm", "threads": 1, "key": KEY, "workdir": str(tmp_path), "trust_file": "none"}
    command = [sys.executable, "-c", program, str(executable), json.dumps(fields)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    port = int(done.stdout.split()[1])
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            return
        threading.Event().wait(0.05)
    pytest.fail("the executor outlived its parent")


def test_requests_that_make_no_sense_are_answered(executor, bundle, golden):
    def error_of(command, **fields):
        return executor.ask(command, **fields)[0]["error"]

    assert "unknown command dance" in error_of("dance")["message"]
    assert "no model is loaded" in error_of("run")["message"]
    assert error_of("load") == {
        "kind": "bad_request",
        "message": "load: path is missing; text of at most 4096 characters is expected",
    }
    assert "is not on the device" in error_of("load", path="/nowhere")["message"]
    assert executor.ask("load", path=str(bundle))[0]["ok"]
    assert "no inputs are set" in error_of("measure")["message"]
    assert executor.ask("inputs", inputs_of(golden))[0]["ok"]
    assert error_of("measure", plan={"colour": 1})["message"].endswith(
        "unknown fields of a measurement: colour"
    )
    assert "a whole number from" in error_of("measure", plan={"min_repeats": "x"})["message"]
    assert "at least one sample" in error_of("measure", plan={"min_repeats": 0})["message"]
    assert (
        "tensors of 4 bytes in a blob of 0"
        in error_of("inputs", tensors=[{"shape": [1], "dtype": "int32"}])["message"]
    )
    assert "a list of sizes" in error_of("inputs", tensors=[{"shape": [-1], "dtype": "int32"}])["message"]
    assert executor.ask("run")[0]["ok"]


def test_silent_strangers_keep_nobody_out(executor):
    strangers = [socket.create_connection(("127.0.0.1", executor.port)) for _ in range(100)]
    for stranger in strangers[:50]:
        stranger.sendall(struct.pack(">I", 100))
    assert "no model" in executor.ask("run")[0]["error"]["message"]
    threads = len(list(Path(f"/proc/{executor.pid}/task").iterdir()))
    assert threads <= 4
    for stranger in strangers:
        stranger.close()


@pytest.mark.parametrize("text", ["[" * 4000, '{"a":' * 700, "{", '"x"', "\xff\xfe"])
def test_a_first_request_that_is_no_object_is_refused(executor, text):
    data = text.encode("latin-1")
    with socket.create_connection(("127.0.0.1", executor.port)) as stranger:
        stranger.sendall(struct.pack(">I", len(data)) + data)
        (length,) = struct.unpack(">I", stranger.recv(4))
        assert json.loads(stranger.recv(length))["error"]["kind"] == "bad_request"
    assert "no model" in executor.ask("run")[0]["error"]["message"]


def test_windows_and_energy_are_the_meters(executable, tmp_path, bundle, golden):
    (tmp_path / "meter.py").write_text(METER)
    meter = [sys.executable, str(tmp_path / "meter.py")]
    plan = {"warmup_s": 0.01, "min_repeats": 2, "max_repeats": 2, "min_time_s": 0.0, "cool_s": 7.0}
    with Executor([str(executable)], tmp_path / "session", meter=meter) as running:
        running.ask("load", path=str(bundle))
        running.ask("inputs", inputs_of(golden))
        reply, _ = running.ask("measure", plan=plan)
    assert reply["ok"] and reply["energy"]["gross_j"] == 2.0 and reply["state_after"] == {"time_s": 2.0}
    # The first window throttled: its times do not count.
    assert "keep" not in reply and "again" not in reply and reply["times_s"]
    asked = reply["asked"]
    assert [one["do"] for one in asked] == ["probe", "idle", "begin", "end", "begin", "end"]
    assert asked[1]["seconds"] == 10.0
    assert asked[2]["plan"]["cool_s"] == 7.0 and asked[2]["plan"]["energy"] is True and "plan" not in asked[4]
    assert asked[5]["end_s"] - asked[5]["start_s"] >= 0.05
    assert asked[5]["runs"] == len(reply["times_s"]) * reply["number"]


@pytest.mark.parametrize(
    ("meter", "reason"),
    [
        (None, "without a process that reads sensors"),
        (["/nowhere/meter"], "No such file"),
        ([sys.executable, "-c", "pass"], "it ended"),
        ([sys.executable, "-c", "print('nonsense')"], "the process that reads sensors failed"),
    ],
)
def test_without_a_meter_times_are_measured_and_the_reason_is_said(
    executable, tmp_path, bundle, golden, meter, reason
):
    with Executor([str(executable)], tmp_path / "session", meter=meter) as running:
        running.ask("load", path=str(bundle))
        running.ask("inputs", inputs_of(golden))
        reply, _ = running.ask("measure", plan={"warmup_s": 0.01, "min_repeats": 3, "min_time_s": 0.0})
    assert reply["energy"]["kind"] == "unavailable" and reason in reply["energy"]["source"]
    assert len(reply["times_s"]) >= 3 and set(reply["state_before"]) == {"time_s"}


def test_halves_are_rounded_as_ieee_says(tmp_path):
    (tmp_path / "half.cc").write_text(HALVES)
    headers = Path(native.__file__).parents[2] / "device_agent" / "native" / "include"
    compiler = [
        sys.executable,
        "-m",
        "ziglang",
        "c++",
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-fno-sanitize=all",
        "-c",
    ]
    command = [*compiler, f"-I{headers}", "half.cc", "-o", "half.o"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    link(tmp_path / "half.so", [tmp_path / "half.o"])
    library = ctypes.CDLL(str(tmp_path / "half.so"))
    halves = np.arange(1 << 16, dtype="uint16").view("float16").astype("float32")
    finite = np.sort(halves[np.isfinite(halves)])
    between = (finite[:-1] + finite[1:]) / 2  # ties
    draw = np.random.default_rng(0).standard_normal(20000).astype("float32")
    edges = np.array([65519.996, 65520.0, 1e30, -1e30, np.inf, -np.inf], "float32")
    values = np.concatenate([finite, between, np.nextafter(between, np.float32(0)), draw * 1e-6, edges])
    values = np.concatenate([values, draw * np.float32(1e5)]).astype("float32")
    found, back = np.zeros(len(values), "uint16"), np.zeros(len(values), "float32")
    library.convert(*(ctypes.c_void_p(array.ctypes.data) for array in (values, found, back)), len(values))
    with np.errstate(over="ignore"):
        expected = values.astype("float16")
    np.testing.assert_array_equal(found, expected.view("uint16"))
    np.testing.assert_array_equal(back, expected.astype("float32"))
    nans = np.array([np.nan, -np.nan], "float32")
    library.convert(*(ctypes.c_void_p(array.ctypes.data) for array in (nans, found, back)), 2)
    assert np.isnan(found[:2].view("float16")).all() and np.isnan(back[:2]).all()


def test_a_second_build_compiles_nothing(executable, monkeypatch):
    def refused(*_args, **_kwargs):
        raise AssertionError("a compiler was started")

    monkeypatch.setattr(subprocess, "run", refused)
    assert native_executor("x86_64", cache=FOLDER) == executable


def test_only_what_changed_is_compiled_again(executable, tmp_path, monkeypatch):
    # The same sources elsewhere, the executor's own with another message.
    sources = native._sources()
    copy = tmp_path / "native"
    shutil.copytree(sources.native, copy)
    (copy / "executor" / "serve" / "status.h").write_text(
        (copy / "executor" / "serve" / "status.h").read_text() + "// another state\n"
    )
    changed = native._Sources(copy, sources.tvm, sources.ffi)
    again = [
        unit.name
        for unit in native._UNITS
        if native._key(unit, "x86_64", sources) != native._key(unit, "x86_64", changed)
    ]
    assert again == [unit.name for unit in native._UNITS if unit.own]
    assert "executor" in again and len(again) <= 3


def test_a_compilers_first_error_is_the_message(tmp_path, monkeypatch):
    compiler = tmp_path / "zig"
    compiler.write_text("#!/bin/sh\necho 'x.cc:1:2: error: no such thing' >&2\necho more >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(native, "_zig", lambda: compiler)
    steps: list[str] = []
    with pytest.raises(PayloadError, match=r"riscv64 cannot be built: \w+: x.cc:1:2: error: no such thing"):
        native_executor("riscv64", 1, lambda what, *_: steps.append(what), tmp_path / "cache")
    assert steps == [] and not list((tmp_path / "cache").glob("*/edgetlm-executor"))


def test_executables_of_earlier_sources_are_forgotten(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    for number in range(9):
        (folder / f"riscv64-old{number}").mkdir(parents=True)
        os.utime(folder / f"riscv64-old{number}", (number, number))
    (folder / "aarch64-old").mkdir()
    monkeypatch.setattr(native._Build, "run", lambda self, output: output.parent.mkdir())
    made = native_executor("riscv64", cache=folder).parent
    left = {path.name for path in folder.glob("*-*")}
    assert left == {made.name, "riscv64-old6", "riscv64-old7", "riscv64-old8", "aarch64-old"}


def test_an_architecture_without_one_is_named():
    with pytest.raises(PayloadError, match="no native executor for mips; there is one for aarch64, riscv64"):
        native_executor("mips")


@pytest.fixture
def ranged(bundle, tmp_path):
    """The small bundle as one whose first input's rows are a length from 2 to 4."""
    folder = tmp_path / "ranged"
    shutil.copytree(bundle, folder)
    signature = json.loads((folder / "manifest.json").read_text())["signature"]
    signature["inputs"][0]["open"] = [0]
    signature["length"] = {"name": "rows", "low": 2, "high": 4}
    reseal(folder, signature=signature)
    return folder


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 64), "input x has length 5, the model takes rows=2..4; give another"),
        ((1, 64), "input x has length 1, the model takes rows=2..4"),
        ((4, 63), r"input x is float32[4, 63], the model takes float32[rows, 64]"),
        ((4,), r"input x is float32[4], the model takes float32[rows, 64]"),
        ((0, 64), r"input x is float32[0, 64], the model takes"),
    ],
)
def test_lengths_outside_the_range_are_named(executor, ranged, golden, shape, message):
    reply, _ = executor.ask("load", path=str(ranged))
    assert reply["signature"]["inputs"][0]["open"] == [0]
    reply, _ = executor.ask("inputs", [np.zeros(shape, "float32"), golden["unused"]])
    assert reply["error"]["kind"] == "bad_request" and message in reply["error"]["message"]
    _, outputs = executor.ask("run", inputs_of(golden))
    np.testing.assert_allclose(outputs[0], golden["z"], rtol=1e-4, atol=1e-5)


def test_another_length_reaches_the_machine(executor, ranged, golden):
    executor.ask("load", path=str(ranged))
    # The library itself was compiled for four rows: that the machine refuses three shows that it got them.
    reply, _ = executor.ask("run", [golden["x"][:3], golden["unused"]])
    assert not reply["ok"] and "3" in reply["error"]["message"]
    assert executor.ask("run", inputs_of(golden))[0]["ok"]


def test_models_follow_one_another(executor, bundle, other_bundle, golden):
    for folder, factor in ((bundle, 1.0), (other_bundle, 2.0), (bundle, 1.0)):
        assert executor.ask("load", path=str(folder))[0]["ok"]
        assert "no inputs" in executor.ask("run")[0]["error"]["message"]
        _, outputs = executor.ask("run", inputs_of(golden))
        np.testing.assert_allclose(outputs[0], factor * golden["z"], rtol=1e-4, atol=1e-4)


def test_a_large_upload_is_not_kept_in_memory(executor, tmp_path):
    from tvm import rpc

    session = rpc.connect("127.0.0.1", executor.port, key=KEY)
    before = resident_mb(executor.pid)
    session.upload(bytearray(20_000_000), "large")
    assert (tmp_path / "session" / "large").stat().st_size == 20_000_000
    session.upload(bytearray(10), "small")
    assert resident_mb(executor.pid) <= before + 5
    assert session.download("large") == bytes(20_000_000)
    session.get_function("CloseRPCConnection")()


def test_an_upload_that_does_not_fit_leaves_nothing(executable, tmp_path):
    from tvm import rpc

    limited = ["/bin/sh", "-c", f"ulimit -f 2000; exec {executable}"]
    with Executor(limited, tmp_path / "session") as running:
        session = rpc.connect("127.0.0.1", running.port, key=KEY)
        with pytest.raises(Exception, match="no space left on the device for large; remove bundles"):
            session.upload(bytearray(3_000_000), "large")
        session.upload(bytearray(10), "small")
        assert [path.name for path in (tmp_path / "session").iterdir()] == ["small"]
        session.get_function("CloseRPCConnection")()
