"""What a session answers, with an engine that only pretends."""

from __future__ import annotations

import pytest

from device_agent.board.machine import Machine
from device_agent.errors import AgentError
from device_agent.execute.executor import Commands, answer
from device_agent.measure.measurement import Meter
from device_agent.measure.meter import PowerMeter
from device_agent.power.none import NoSensor
from device_agent.wire import frames
from device_agent.wire.frames import TensorData
from device_agent.wire.shared_token import SharedToken


class Doubler:
    """Returns its inputs twice; fails on demand."""

    def __init__(self):
        self.error = None
        self.inputs = []

    def load(self, path, threads):
        self.loaded = (path, threads)
        return {"inputs": [], "outputs": []}

    def bind(self, inputs):
        self.inputs = list(inputs)

    def invoke(self):
        if self.error:
            raise self.error

    def outputs(self):
        return [TensorData(t.shape, t.dtype, bytes(t.data)) for t in self.inputs * 2]


@pytest.fixture
def engine():
    return Doubler()


@pytest.fixture
def commands(engine, tmp_path):
    machine = Machine(str(tmp_path))
    meter = Meter(machine, PowerMeter(machine, NoSensor("none")), 3)
    return Commands("doubler", engine, meter, 3, str(tmp_path / "trust.json"))


def ask(commands, command, blob=b"", **fields):
    header, blobs = answer(commands, {"command": command, **fields}, bytearray(blob))
    return header, b"".join(bytes(part) for part in blobs)


def refused(commands, kind, text, command, **fields):
    header, _ = ask(commands, command, **fields)
    assert not header["ok"] and header["error"]["kind"] == kind
    assert text in header["error"]["message"] and "\n" not in header["error"]["message"]


SPEC = [{"shape": [2], "dtype": "uint8"}]


def test_a_model_is_loaded_bound_and_run(commands, engine, tmp_path):
    assert ask(commands, "load", path=str(tmp_path))[0]["ok"]
    assert engine.loaded == (str(tmp_path), 3)
    header, blob = ask(commands, "run", b"ab", tensors=SPEC)
    assert header["tensors"] == SPEC * 2 and blob == b"abab"
    assert (
        ask(commands, "measure", plan={"min_time_s": 0, "min_repeats": 2, "warmup_s": 0})[0]["threads"] == 3
    )


def test_loading_and_the_first_run_after_it_are_timed(commands, tmp_path):
    for _ in range(2):
        assert ask(commands, "load", path=str(tmp_path))[0]["load_s"] > 0
        assert ask(commands, "run", b"ab", tensors=SPEC)[0]["first_run_s"] > 0
        assert "first_run_s" not in ask(commands, "run", b"ab", tensors=SPEC)[0]
    ask(commands, "load", path=str(tmp_path))
    ask(commands, "inputs", b"ab", tensors=SPEC)
    ask(commands, "measure", plan={"min_time_s": 0, "min_repeats": 2, "warmup_s": 0})
    assert "first_run_s" not in ask(commands, "run")[0], "it had run before"


def test_order_matters(commands, tmp_path):
    refused(commands, "bad_request", "no model is loaded", "run", tensors=SPEC)
    ask(commands, "load", path=str(tmp_path))
    refused(commands, "bad_request", "no inputs are set", "measure")


def test_loading_another_model_forgets_the_inputs(commands, tmp_path):
    ask(commands, "load", path=str(tmp_path))
    ask(commands, "inputs", b"ab", tensors=SPEC)
    ask(commands, "load", path=str(tmp_path))
    refused(commands, "bad_request", "no inputs are set", "measure")


def test_mistakes_are_named(commands, tmp_path):
    refused(commands, "bad_request", "unknown command fly", "fly")
    refused(commands, "bad_request", "is not on the device", "load", path=str(tmp_path / "nothing"))
    refused(commands, "bad_request", "path is missing", "load")
    ask(commands, "load", path=str(tmp_path))
    refused(commands, "bad_request", "tensors of 2 bytes in a blob of 0", "inputs", tensors=SPEC)
    ask(commands, "inputs", b"ab", tensors=SPEC)
    refused(commands, "bad_request", "tvm engine only", "profile")
    refused(commands, "bad_request", "tvm engine only", "intermediates")


@pytest.mark.parametrize(
    "error", [AgentError("engine", "no\nkernel"), RuntimeError("no\nkernel"), MemoryError()]
)
def test_a_failing_model_does_not_end_the_session(commands, engine, tmp_path, error):
    ask(commands, "load", path=str(tmp_path))
    engine.error = error
    text = "out of memory" if isinstance(error, MemoryError) else "no kernel"
    header, _ = ask(commands, "run", b"ab", tensors=SPEC)
    assert header["error"]["kind"] == "engine" and text in header["error"]["message"]
    engine.error = None
    assert ask(commands, "run", b"ab", tensors=SPEC)[0]["ok"]


def test_hello_needs_version_and_secret():
    good = {"command": "hello", "schema": frames.SCHEMA, "secret": "s"}
    assert frames.check_hello(frames.frame(good), SharedToken("s").admit)["secret"] == "s"
    for change, kind in (
        ({"secret": "x"}, "denied"),
        ({"schema": "edgetlm/0"}, "bad_request"),
        ({"command": "run"}, "bad_request"),
    ):
        with pytest.raises(AgentError) as caught:
            frames.check_hello(frames.frame({**good, **change}), SharedToken("s").admit)
        assert caught.value.kind == kind
