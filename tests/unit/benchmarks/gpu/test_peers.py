"""Libraries beside ours in the benchmark of GPUs: they are named where they are missing."""

from __future__ import annotations

import io
import json
import lzma
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.transformers.float16 import convert_float_to_float16

from benchmarks.gpu import __main__ as benchmark
from benchmarks.gpu import driver, peers
from benchmarks.gpu.kit import MODEL_SUFFIX, ONNX_SUFFIX, PLAN, Kit
from benchmarks.gpu.peers import ONNX_RUNTIME_WAYS, TORCH_WAYS, WAYS, onnxruntime_peers
from benchmarks.gpu.summary import main as summarise
from benchmarks.gpu.summary import summary, text_of
from tests.integration.small_models import convnet

MODEL, LAYER = "convnet", "small product"


def _kit(folder: Path) -> Kit:
    """A kit of a model with one golden case, and of a layer, without programs."""
    path = convnet(folder / "model.onnx")
    session = ort.InferenceSession(path)
    generator = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        f"case0_input{number}": generator.standard_normal(one.shape, dtype=np.float32)
        for number, one in enumerate(session.get_inputs())
    }
    given = {one.name: arrays[f"case0_input{n}"] for n, one in enumerate(session.get_inputs())}
    outputs = session.run(None, given)
    arrays |= {f"case0_output{number}": np.asarray(one) for number, one in enumerate(outputs)}
    golden = io.BytesIO()
    np.savez(golden, **arrays)
    with tarfile.open(folder / f"{MODEL}{MODEL_SUFFIX}", "w:xz") as archive:
        entry = tarfile.TarInfo("golden.npz")
        entry.size = len(golden.getvalue())
        archive.addfile(entry, io.BytesIO(golden.getvalue()))
    halves = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    (folder / f"{MODEL}{ONNX_SUFFIX}").write_bytes(lzma.compress(halves.SerializeToString()))
    tasks = {LAYER: {"sizes": {"kind": "product"}, "arguments": [], "programs": []}}
    plan = {"heading": {}, "peaks": {}, "tasks": tasks, "models": [MODEL]}
    (folder / PLAN).write_text(json.dumps(plan))
    return Kit(folder)


def test_onnx_runtime_computes_the_model_in_halves(tmp_path: Path) -> None:
    found = onnxruntime_peers.model(_kit(tmp_path), MODEL, False, tmp_path / "work", device="cpu")
    assert found["latency_s"] > 0 and found["prepare_s"] > 0
    # Halves are not exact, so a difference of zero would be that of the model in single precision.
    assert 0 < found["difference"] < 1e-2


def test_missing_libraries_are_the_reason_of_each_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, results = _kit(tmp_path), tmp_path / "results"
    monkeypatch.setitem(sys.modules, "benchmarks.gpu.peers.torch_peers", None)
    # Where another test has imported it, the package has it as an attribute.
    monkeypatch.delattr(peers, "torch_peers", raising=False)
    # A machine without a driver: another test may have loaded a stand-in under the driver's name.
    monkeypatch.setattr(driver, "_LIBRARY", "libcuda-is-not-here.so.1")
    for stage in ("layer_peers", "model_peers"):
        assert benchmark._stage(stage, kit, results, "run") == 0
    layers = json.loads((results / "layer_peers.json").read_text())
    assert "torch_peers" in layers[LAYER]["error"]
    models = json.loads((results / "model_peers.json").read_text())
    assert list(models) == [f"{MODEL} {way}" for way in WAYS]
    for way in TORCH_WAYS:
        assert "torch_peers" in models[f"{MODEL} {way}"]["error"]
    for way in ONNX_RUNTIME_WAYS:
        error = models[f"{MODEL} {way}"]["error"]
        assert "no CUDAExecutionProvider; install onnxruntime-gpu" in error


def test_summary_has_each_library_under_its_name(tmp_path: Path) -> None:
    kit, results = _kit(tmp_path), tmp_path / "results"
    results.mkdir()
    memory = {"memory_bytes": 2_000_700, "weights_bytes": 200, "activations_bytes": 500_100}
    ours = {"latency_s": 0.001, "load_s": 0.25, "first_run_s": 0.002, **memory}
    (results / "models.json").write_text(json.dumps({MODEL: ours}))
    (results / "machine.json").write_text(json.dumps({"context": {"bytes": 400}}))
    peers = {
        f"{MODEL} graph": {"latency_s": 0.002},
        f"{MODEL} onnxruntime": {"latency_s": 0.003},
        f"{MODEL} onnxruntime-graph": {"error": "no graph", "run": "run"},
    }
    (results / "model_peers.json").write_text(json.dumps(peers))
    found = summary(kit, results)
    assert found["models"][MODEL]["torch_over_ours"] == pytest.approx({"graph": 2.0})
    assert found["models"][MODEL]["onnxruntime_over_ours"] == pytest.approx({"onnxruntime": 3.0})
    assert found["models"][MODEL]["beyond_weights_bytes"] == 2_000_100
    assert found["models"][MODEL]["beyond_bytes"] == 1_500_000
    assert found["errors"] == {f"model_peers: {MODEL} onnxruntime-graph": "no graph"}
    text = text_of(found)
    assert "2.00 of torch's graph, 3.00 of onnxruntime" in text
    assert "loaded in 0.250 s, first inference 0.002 s, 1.5 MB beyond weights and activations" in text


def test_no_result_is_made_of_figures_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit, results, output = _kit(tmp_path).folder, tmp_path / "results", tmp_path / "output.json"
    for wrong, reason in (((kit, results), "has no figures of a GPU"), ((results, results), "is no kit")):
        with pytest.raises(SystemExit):
            summarise([*map(str, wrong), "--json", str(output)])
        assert reason in capsys.readouterr().err
    assert not output.exists()
