"""The examples as their README says them, on a bundle of this machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import sdk
from host.errors import BundleError, DeviceError, ModelFileError, ShapeError
from tests import tiny_decoder as tiny
from tests.integration.small_models import convnet, floats, save
from tests.signing import reseal, trust
from tests.tiny_bundle import write_tiny
from tests.unit.importers.decoders.models import save as save_model

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def image_bundle(folder: Path) -> Path:
    """A network for images."""
    sdk.compile(convnet(folder / "net.onnx"), output=folder / "net", backend="tvm", threads=1)
    return folder / "net"


@pytest.fixture(scope="module")
def pair_bundle(folder: Path) -> Path:
    """Two inputs and two outputs, with weights."""
    weights = {"a": np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["positive"]),
    ]
    inputs, outputs = [floats("x", 4, 16), floats("b", 4, 8)], [floats("sum", 4, 8), floats("positive", 4, 8)]
    model = save(folder / "pair.onnx", nodes, inputs, outputs, weights)
    sdk.compile(model, output=folder / "pair", backend="tvm", threads=1)
    return folder / "pair"


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    """A C++ program, `generate` beside it; built as for a board, with the compiler that every host has."""
    # Not "CXX": pytest's own environment must not choose another. The system is that of the native executor:
    # zig's C++ library is compiled once for both.
    target = f"{platform.machine()}-linux-gnu.2.28"
    command = ["make", "-s", "-C", str(EXAMPLES / "cpp"), f"PYTHON={sys.executable}", f"OUT={folder}"]
    command.append(f"CXX={sys.executable} -m ziglang c++ -target {target}")
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "warning" not in built.stderr
    return folder / "run_bundle"


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def pair() -> dict[str, np.ndarray]:
    return {"x": draw(4, 16), "b": draw(4, 8)}


def example(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


# -- C++


@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_computes_what_python_does(program: Path, pair_bundle: Path, tmp_path: Path) -> None:
    inputs = pair()
    for name, value in inputs.items():
        value.tofile(tmp_path / f"{name}.bin")
    command = [program, pair_bundle, "--runs", "3", "--output", tmp_path / "out"]
    files = [tmp_path / "x.bin", tmp_path / "b.bin"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "input  x float32[4, 16]" in done.stdout
    assert "3 runs" in done.stdout
    with sdk.connect() as device:
        expected = device.run(pair_bundle, inputs)
    for index, value in enumerate(expected.values()):
        found = np.fromfile(tmp_path / f"out{index}.bin", np.float32).reshape(value.shape)
        # The same library on the same machine: the same bits.
        np.testing.assert_array_equal(found, value)


@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_runs_a_model_with_state(program: Path, tmp_path: Path) -> None:
    for name, value in {"tokens": 2, "position": 2}.items():
        np.array([value], np.int32).tofile(tmp_path / f"{name}.bin")
    files = [tmp_path / "tokens.bin", tmp_path / "position.bin"]
    command = [program, write_tiny(tmp_path), "--output", tmp_path / "out", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The state is zeros at first.
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out0.bin", np.float32), tiny.logits([0, 0, 2])[0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda bundle: (bundle / "manifest.json").write_text("{"), "Expecting property name"),
        (lambda bundle: (bundle / "manifest.json").unlink(), "is not a bundle: it has no manifest.json"),
        (
            lambda bundle: (bundle / "params.bin").write_bytes(b"x" * 512),
            "params.bin does not match the hash",
        ),
        (lambda bundle: (bundle / "params.bin").unlink(), "it lacks params.bin"),
        (lambda bundle: (bundle / "lib.so").write_bytes(b"no library"), "lib.so does not match the hash"),
        (
            lambda bundle: (bundle / "more").write_bytes(b""),
            "it holds more, which its manifest does not name",
        ),
        (lambda bundle: reseal(bundle, threads=1000000), "threads is 1000000, not a whole number from 1 to"),
        (lambda bundle: reseal(bundle, model="/lib/libc.so.6"), "its model is none of its files"),
        (lambda bundle: reseal(bundle, target={"kind": "cuda"}), "it is for a GPU"),
    ],
)
@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_says_what_is_wrong_with_a_bundle(
    program: Path, pair_bundle: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    copy = shutil.copytree(pair_bundle, tmp_path / "copy")
    damage(copy)
    done = subprocess.run([program, copy], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_a_cpp_program_runs_what_this_device_trusts(program: Path, pair_bundle: Path, tmp_path: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [program, copy, "--runs", "1", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    copy = shutil.copytree(pair_bundle, tmp_path / "copy")
    refused = run()
    assert refused.returncode == 1 and "who is not trusted here" in refused.stderr
    allowed = run("--trust", "unsigned")
    assert allowed.returncode == 0, allowed.stderr
    assert allowed.stderr.startswith("warning: ")
    assert allowed.stderr.endswith("is loaded without trust in its signer\n")
    keys = Path(os.environ["EDGETLM_STORE"], "trust.json")
    trust(keys)
    silent = run()
    assert (silent.returncode, silent.stderr) == (0, "")
    (copy / "manifest.sig").unlink()
    assert "it is not signed" in run().stderr
    keys.chmod(0o666)
    assert "can be written to by others" in run("--trust", "unsigned").stderr


@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_refuses_inputs_of_another_size(
    program: Path, pair_bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.bin").write_bytes(b"1234")
    for files, message in (
        ([tmp_path / "short.bin"], "takes 2 input files"),
        ([tmp_path / "short.bin"] * 2, "256"),
    ):
        done = subprocess.run([program, pair_bundle, *files], capture_output=True, text=True, check=False)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr


# -- C++: texts


@pytest.fixture(scope="module")
def text_bundle(folder: Path) -> Path:
    """A language model with places for 560 tokens."""
    save_model(folder / "qwen", "qwen3", head_dim=32, max_position_embeddings=1024)
    sdk.compile(
        folder / "qwen", output=folder / "text", backend="tvm", threads=1, context_tokens=560, quantize="int4"
    )
    return folder / "text"


def generated(program: Path, bundle: Path, *words: object) -> tuple[list[int], list[str]]:
    """Tokens that the C++ program writes, and what it says of them."""
    command = [program.with_name("generate"), bundle, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()], done.stderr.splitlines()


@pytest.mark.usefixtures("trusted_here")
def test_cpp_writes_what_python_does_in_the_same_memory(program: Path, text_bundle: Path) -> None:
    # More than a chunk, and a rest.
    prompt = [place * 7 % 128 for place in range(41)]
    found, said = generated(program, text_bundle, "--max-tokens", 510, "--memory", *prompt)
    with sdk.load_language_model(text_bundle) as model:
        assert found == list(model.generate(prompt, max_tokens=510))
    assert len(found) == 510 and len(set(found)) > 9
    *pages, summary = said
    assert summary.startswith("510 tokens, ") and summary.endswith("; max_tokens")
    counted = {int(line.split()[1].rstrip(":")): int(line.split()[2]) for line in pages}
    assert list(counted) == [100, 200, 300, 400, 500]
    assert counted[500] - counted[100] <= 2


@pytest.mark.usefixtures("trusted_here")
def test_cpp_draws_the_same_tokens_with_the_same_seed(program: Path, text_bundle: Path) -> None:
    def drawn(seed: int, *options: object) -> list[int]:
        words = ("--temperature", 3, "--max-tokens", 12, "--seed", seed, *options, 5, 6)
        return generated(program, text_bundle, *words)[0]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) == 4
    greedy, _ = generated(program, text_bundle, "--max-tokens", 12, 5, 6)
    assert drawn(1, "--top-k", 1) == drawn(2, "--top-p", 1e-9) == greedy
    assert drawn(3, "--top-k", 20, "--top-p", 0.9) != greedy


@pytest.mark.usefixtures("trusted_here")
def test_cpp_ends_a_text_where_python_does(program: Path, tmp_path: Path) -> None:
    bundle = write_tiny(tmp_path)
    for prompt in ([3, 1, 4], [1], list(range(8)) * 4):
        tokens = list(prompt)
        while len(tokens) <= tiny.CONTEXT and tiny.next_token(tokens) != tiny.END:
            tokens.append(tiny.next_token(tokens))
        full = len(tokens) > tiny.CONTEXT
        found, [said] = generated(program, bundle, *prompt)
        assert found == tokens[len(prompt) :]
        assert said.endswith("; the context is full" if full else "; end of text")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the prompt is empty"),
        ([1] * 33, "the prompt has 33 tokens, the model has a context of 32"),
        ([13], "token 13 is not of the model's vocabulary, 0 to 12"),
        ([-1], "token -1 is not"),
        (["1x"], "'1x' is not a number"),
        ([1.5], "'1.5' is not a whole number"),
        (["--max-tokens", 0, 1], "the number of tokens to generate is not 1 or more"),
        (["--temperature", -1, 1], "temperature is not 0 or more"),
        (["--top-p", 0, 1], "top_p is not above 0"),
        (["--seed"], "generate BUNDLE"),
    ],
)
@pytest.mark.usefixtures("trusted_here")
def test_cpp_refuses_prompts_that_are_none(
    program: Path, tmp_path: Path, words: list[object], message: str
) -> None:
    command = [program.with_name("generate"), write_tiny(tmp_path), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and message in done.stderr


@pytest.mark.usefixtures("trusted_here")
def test_cpp_generates_with_language_models_only(program: Path, pair_bundle: Path) -> None:
    command = [program.with_name("generate"), pair_bundle, "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "not a language model's" in done.stderr


# -- Python on the device


@pytest.mark.usefixtures("trusted_here")
def test_the_camera_loop_classifies_frames_and_reports_percentiles(image_bundle: Path) -> None:
    done = example("camera.py", image_bundle, "--frames", 8)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-4].startswith("8 frames in ")
    assert [line.split()[0] for line in lines[-3:]] == ["preprocess", "inference", "frame"]
    assert all("p99" in line for line in lines[-3:])


@pytest.mark.usefixtures("trusted_here")
def test_the_camera_loop_ends_in_order_when_told_to(image_bundle: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "camera.py"), str(image_bundle)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline().startswith("class ")
        loop.send_signal(signal.SIGTERM)
        rest = loop.stdout.read()
    assert loop.returncode == 0
    assert "frames in" in rest
    assert "inference" in rest


@pytest.mark.usefixtures("trusted_here")
def test_the_camera_loop_takes_an_installed_model_by_its_name(image_bundle: Path, tmp_path: Path) -> None:
    from host.transport.local import connect_local

    home = tmp_path / "agent-home"
    with connect_local(home / "device") as device:
        device.activate("net", device.install(image_bundle, "net"))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "camera.py"), "net", "--frames", "2"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "EDGETLM_HOME": str(home)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4].startswith("2 frames in ")


# -- Python on the host


def test_deploying_and_running_from_the_host(folder: Path, image_bundle: Path) -> None:
    done = example("deploy.py", folder / "net.onnx", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert "net runs on local in" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("bundle ")]
    assert (Path(line.split()[1]) / "manifest.json").is_file()
    done = example("run_from_host.py", image_bundle, "--runs", 2)
    assert done.returncode == 0, done.stderr
    assert "call 2: " in done.stdout


@pytest.fixture
def device() -> Iterator[sdk.api.Device]:
    with sdk.connect() as connected:
        yield connected


def test_run_takes_a_dict_a_list_or_the_only_array(
    device: sdk.api.Device, pair_bundle: Path, image_bundle: Path
) -> None:
    inputs = pair()
    by_name = device.run(pair_bundle, inputs)
    assert list(by_name) == ["sum", "positive"]
    in_order = device.run(str(pair_bundle), [inputs["x"], inputs["b"]])
    for name, value in by_name.items():
        np.testing.assert_array_equal(value, in_order[name])
    np.testing.assert_array_equal(by_name["positive"], np.maximum(by_name["sum"], 0))
    [info] = json.loads((image_bundle / "manifest.json").read_text())["signature"]["inputs"]
    [(_, scores)] = device.run(image_bundle, draw(*info["shape"])).items()
    assert np.isfinite(scores).all()


def test_run_keeps_the_session_of_a_bundle_until_it_changes(
    device: sdk.api.Device, pair_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in pair_bundle.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    opened: list[str] = []
    transport = device._transport
    open_session = transport.open_session

    def counting(engine: str, *arguments: object, **others: object) -> object:
        opened.append(engine)
        return open_session(engine, *arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(transport, "open_session", counting)
    for _ in range(3):
        device.run(copy, pair())
    assert opened == ["tvm"]
    os.utime(copy / "lib.so")
    device.run(copy, pair())
    assert opened == ["tvm"] * 2
    (copy / "lib.so").write_bytes(b"damaged")
    with pytest.raises(BundleError):
        device.run(copy, pair())


def test_run_says_what_does_not_fit(device: sdk.api.Device, pair_bundle: Path, tmp_path: Path) -> None:
    inputs = pair()
    with pytest.raises(ModelFileError, match="no such bundle"):
        device.run(tmp_path / "none", inputs)
    with pytest.raises(ShapeError, match="inputs given: 1, the model takes 2: x, b"):
        device.run(pair_bundle, inputs["x"])
    with pytest.raises(ShapeError, match="'b' is missing"):
        device.run(pair_bundle, {"x": inputs["x"]})
    with pytest.raises(ShapeError, match="no input 'y'"):
        device.run(pair_bundle, {**inputs, "y": inputs["x"]})
    with pytest.raises(ShapeError, match="'x' is a list: give a numpy array"):
        device.run(pair_bundle, {**inputs, "x": [1.0]})
    with pytest.raises(ShapeError, match="float64"):
        device.run(pair_bundle, {**inputs, "x": inputs["x"].astype(np.float64)})
    # Nothing of it cost the session.
    assert device.run(pair_bundle, inputs)["sum"].shape == (4, 8)


def test_run_goes_on_after_its_session_died(device: sdk.api.Device, pair_bundle: Path) -> None:
    expected = device.run(pair_bundle, pair())
    [model] = device._loaded.values()
    os.kill(model._session.pid, signal.SIGKILL)
    with pytest.raises(DeviceError):
        device.run(pair_bundle, pair())
    np.testing.assert_array_equal(device.run(pair_bundle, pair())["sum"], expected["sum"])
