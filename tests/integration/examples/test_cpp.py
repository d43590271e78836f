"""`run_bundle` of the C++ examples: what Python computes, and what it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sdk
from device_agent.execute.memory.pages import has_huge_pages
from tests import tiny_decoder as tiny
from tests.integration.examples.running import pair
from tests.signing import reseal, trust
from tests.tiny_bundle import write_tiny


@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_computes_what_python_does(run_bundle: Path, pair_bundle: Path, tmp_path: Path) -> None:
    inputs = pair()
    for name, value in inputs.items():
        value.tofile(tmp_path / f"{name}.bin")
    command = [run_bundle, pair_bundle, "--runs", "3", "--output", tmp_path / "out"]
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
def test_a_cpp_program_runs_a_model_with_state(run_bundle: Path, tmp_path: Path) -> None:
    for name, value in {"tokens": 2, "position": 2}.items():
        np.array([value], np.int32).tofile(tmp_path / f"{name}.bin")
    files = [tmp_path / "tokens.bin", tmp_path / "position.bin"]
    command = [run_bundle, write_tiny(tmp_path), "--output", tmp_path / "out", *files]
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
        (
            lambda bundle: reseal(bundle, backend="tensorrt-fp16", parameters=[]),
            "it runs in tensorrt-fp16, not in TVM",
        ),
    ],
)
@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_says_what_is_wrong_with_a_bundle(
    run_bundle: Path, pair_bundle: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    copy = shutil.copytree(pair_bundle, tmp_path / "copy")
    damage(copy)
    done = subprocess.run([run_bundle, copy], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def _files_in_memory(command: list[str | Path], fifo: Path, content: bytes) -> str:
    """The mappings of a program that has loaded its bundle and begins to read an input; it ends well then."""
    os.mkfifo(fifo)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        writer = None
        while writer is None:
            assert process.poll() is None, "it ended before it read an input"
            try:
                writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                time.sleep(0.01)  # nobody reads yet
        found = Path(f"/proc/{process.pid}/maps").read_text()
        with os.fdopen(writer, "wb") as file:
            file.write(content)
        assert process.wait(timeout=120) == 0
    return found


@pytest.mark.skipif(not has_huge_pages(), reason="without huge pages, weights are always mapped")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_copies_streamed_weights_to_huge_pages(
    run_bundle: Path, pair_bundle: Path, tmp_path: Path, streamed: bool
) -> None:
    copy = shutil.copytree(pair_bundle, tmp_path / "copy")
    reseal(copy, streamed=streamed)
    inputs = pair()
    inputs["b"].tofile(tmp_path / "b.bin")
    command = [run_bundle, copy, "--runs", "1", tmp_path / "fifo", tmp_path / "b.bin"]
    found = _files_in_memory(command, tmp_path / "fifo", inputs["x"].tobytes())
    assert "lib.so" in found
    assert ("params.bin" in found) == (not streamed)


def test_a_cpp_program_runs_what_this_device_trusts(
    run_bundle: Path, pair_bundle: Path, tmp_path: Path
) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [run_bundle, copy, "--runs", "1", *options]
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runs", "many"], "'many' is not a number"),
        (["--runs", "0"], "the number of runs is not 1 or more"),
        (["--runs"], "run_bundle BUNDLE [--runs N]"),
        (["--rusn", "3"], "run_bundle BUNDLE [--runs N]"),
    ],
)
def test_a_cpp_program_refuses_options_that_it_does_not_understand(
    run_bundle: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    done = subprocess.run([run_bundle, tmp_path, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and message in done.stderr


@pytest.mark.usefixtures("trusted_here")
def test_a_cpp_program_refuses_inputs_of_another_size(
    run_bundle: Path, pair_bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.bin").write_bytes(b"1234")
    for files, message in (
        ([tmp_path / "short.bin"], "takes 2 input files"),
        ([tmp_path / "short.bin"] * 2, "256"),
    ):
        done = subprocess.run([run_bundle, pair_bundle, *files], capture_output=True, text=True, check=False)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
