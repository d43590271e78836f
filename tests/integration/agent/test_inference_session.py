"""Bundles behind the calls of ONNX Runtime's session, as a program on a board uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import device_agent.inference_session as ort

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("trusted_here")

PROGRAM = """
import sys
BLOCKED = ("host", "sdk", "targets", "tvm", "torch", "onnxruntime", "onnx")
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import numpy
import device_agent.inference_session as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
feed = {"unused": numpy.zeros(1, "int64"), "x": numpy.ones((4, 64), "float32")}
[z, s] = session.run(None, feed)
assert isinstance(z, numpy.ndarray) and z.shape == (4, 32)
[again] = session.run(["s"], feed)
assert (again == s).all()
"""


def feed() -> dict[str, np.ndarray]:
    return {"unused": np.zeros(1, "int64"), "x": np.ones((4, 64), "float32")}


@pytest.fixture
def session(bundle: Path) -> ort.InferenceSession:
    return ort.InferenceSession(bundle)


def test_a_program_needs_nothing_but_the_runtime(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = next(Path(sys.prefix).rglob("libtvm_runtime.so"))
    monkeypatch.setenv("EDGETLM_RUNTIME_LIB", str(library))
    command = [sys.executable, "-c", PROGRAM, str(bundle)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_names_shapes_and_types_are_written_as_onnx_runtime_does(session: ort.InferenceSession) -> None:
    assert session.get_inputs()[0] == ("x", [4, 64], "tensor(float)")
    assert session.get_inputs()[1].type == "tensor(int64)"
    assert [one.name for one in session.get_outputs()] == ["z", "s"]
    assert session.get_providers() == ort.get_available_providers() == ["EdgeTLMExecutionProvider"]


def test_arrays_may_lie_in_memory_as_they_like(session: ort.InferenceSession) -> None:
    x = np.random.default_rng(0).normal(size=(4, 64)).astype("float32")
    expected = session.run(["z"], {**feed(), "x": x})[0]
    for other in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        assert (session.run(["z"], {**feed(), "x": other})[0] == expected).all()


def test_settings_that_mean_nothing_here_are_taken_and_those_that_would_be_missed_are_refused(
    bundle: Path,
) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert ort.InferenceSession(bundle, options).get_session_options() is options
    theirs = onnxruntime.SessionOptions()
    theirs.intra_op_num_threads = 1
    ort.InferenceSession(bundle, theirs)
    with pytest.raises(AttributeError, match="the setting enable_profiling is not part of sessions"):
        options.enable_profiling = True
    with pytest.raises(AttributeError, match="register_custom_ops_library is not part of sessions"):
        options.register_custom_ops_library("x.so")


@pytest.mark.parametrize(
    ("providers", "words"),
    [
        (
            ["CUDAExecutionProvider"],
            "CUDAExecutionProvider: the bundle runs by EdgeTLMExecutionProvider on CPU",
        ),
        ([("EdgeTLMExecutionProvider", {"device": 0})], "has no option 'device': it has trust, keys"),
    ],
)
def test_a_provider_that_does_not_run_the_bundle_is_refused(
    bundle: Path, providers: list[ort.Provider], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        ort.InferenceSession(bundle, providers=providers)
    ort.InferenceSession(bundle, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])


def test_trust_is_an_option_of_the_provider(bundle: Path, tmp_path: Path) -> None:
    nobody = {"keys": str(tmp_path / "trust.json")}
    with pytest.raises(ort.BundleError, match="who is not trusted here"):
        ort.InferenceSession(bundle, providers=[("EdgeTLMExecutionProvider", nobody)])
    with pytest.warns(UserWarning, match="trust"):
        ort.InferenceSession(
            bundle, providers=["EdgeTLMExecutionProvider"], provider_options=[{**nobody, "trust": "unsigned"}]
        )


def test_what_is_no_part_of_a_session_is_refused_in_one_line(session: ort.InferenceSession) -> None:
    assert not hasattr(session, "io_binding")
    with pytest.raises(AttributeError, match="io_binding is not part of sessions of bundles: call run"):
        session.io_binding()
    with pytest.raises(AttributeError, match="set_providers is not part of sessions of bundles: use run"):
        session.set_providers([])
    with pytest.raises(ValueError, match="the model has no output 'absent': it has z, s"):
        session.run(["absent"], feed())
    with pytest.raises(ValueError, match="input x is float64"):
        session.run(None, {**feed(), "x": np.ones((4, 64))})


def test_a_file_is_no_bundle_on_a_board(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"")
    with pytest.raises(ort.BundleError, match=r"sdk compile FILE -o BUNDLE --target NAME"):
        ort.InferenceSession(model)
    with pytest.raises(ort.BundleError, match="a model in memory cannot be loaded here"):
        ort.InferenceSession(b"model")
