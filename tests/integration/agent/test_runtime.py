"""`device_agent.runtime` as an application uses it: no host, no tvm package, no NumPy needed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import device_agent.runtime as runtime
from tests.integration.agent import small_models

ROOT = Path(__file__).parents[3]

APPLICATION = """
import sys
BLOCKED = ("host", "sdk", "targets", "tvm", "numpy", "torch", "onnxruntime")
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import array, os
import device_agent.runtime
model = device_agent.runtime.load(sys.argv[1])
x = memoryview(array.array("f", [1.0] * 256)).cast("B").cast("f", (4, 64))
outputs = model.run({"unused": memoryview(array.array("q", [0])), "x": x})
assert list(outputs) == ["z", "s"] and tuple(outputs["z"].shape) == (4, 32)
outputs["z"].__dlpack__()
assert not any(name.split(".")[0] in BLOCKED for name in sys.modules), sorted(sys.modules)
pages = int(open("/proc/self/statm").read().split()[1])
print(pages * os.sysconf("SC_PAGE_SIZE") // 1000000)
"""


@pytest.fixture
def model(bundle):
    return runtime.load(bundle)


def test_an_application_needs_nothing_but_the_runtime(bundle, monkeypatch):
    library = next(Path(sys.prefix).rglob("libtvm_runtime.so"))
    monkeypatch.setenv("EDGETLM_RUNTIME_LIB", str(library))
    command = [sys.executable, "-c", APPLICATION, str(bundle)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 60


def test_a_missing_runtime_says_what_to_install(bundle, monkeypatch):
    monkeypatch.setenv("EDGETLM_RUNTIME_LIB", "/nowhere/libtvm_runtime.so")
    command = [sys.executable, "-c", APPLICATION, str(bundle)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "libtvm_runtime.so not found (/nowhere/libtvm_runtime.so); install apache-tvm" in done.stderr


def test_outputs_are_right_by_name_and_in_order(model, golden):
    for inputs in ({"x": golden["x"], "unused": golden["unused"]}, [golden["x"], golden["unused"]]):
        outputs = model.run(inputs)
        np.testing.assert_allclose(outputs["z"], golden["z"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(outputs["s"], golden["s"], rtol=1e-4)


def test_an_output_is_not_changed_by_the_next_run(model, golden):
    first = model.run([golden["x"], golden["unused"]])["z"]
    kept = first.copy()
    model.run([golden["x"] * 3, golden["unused"]])
    np.testing.assert_array_equal(first, kept)


def test_arrays_of_any_kind_are_taken(model, golden):
    frozen = golden["x"].copy()
    frozen.flags.writeable = False
    strided = np.repeat(golden["x"], 2, axis=1)[:, ::2]
    for x in (frozen, np.asfortranarray(golden["x"]), strided):
        np.testing.assert_allclose(model.run([x, golden["unused"]])["z"], golden["z"], rtol=1e-4, atol=1e-5)


def test_tensors_that_speak_dlpack_are_taken(model, golden):
    tensor = runtime.ffi.empty((4, 64), "float32")
    runtime.ffi.copy_from_buffer(tensor, golden["x"])

    class Foreign:
        """Has DLPack and no buffer protocol."""

        def __dlpack__(self, **_):
            return tensor.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    np.testing.assert_allclose(
        model.run([Foreign(), golden["unused"]])["z"], golden["z"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i.pop("x"), "the model takes"),
        (lambda i: i.update(y=i["x"]), "the model takes"),
        (lambda i: i.update(x=i["x"][:2]), r"input x is float32\[2, 64\], the model takes float32\[4, 64\]"),
        (lambda i: i.update(x=i["x"].astype("float64")), "input x is float64"),
        (lambda i: i.update(x=[1.0, 2.0]), "input x is a <class 'list'>"),
    ],
)
def test_wrong_inputs_are_named(model, golden, change, message):
    inputs = {"x": golden["x"], "unused": golden["unused"]}
    change(inputs)
    with pytest.raises(ValueError, match=message):
        model.run(inputs)


def test_a_wrong_number_of_inputs_is_named(model, golden):
    with pytest.raises(ValueError, match="1 inputs given, the model takes 2"):
        model.run([golden["x"]])


def test_a_bundle_of_another_engine_runs_the_same_way(tmp_path):
    small_models.write_onnx(tmp_path / "model.onnx")
    spec = {"shape": [2, 3], "dtype": "float32"}
    manifest = {
        "schema": "edgetlm.bundle/1",
        "backend": "onnxruntime",
        "model": "model.onnx",
        "threads": 1,
        "signature": {
            "inputs": [{"name": "x", **spec}, {"name": "y", **spec}],
            "outputs": [{"name": "out", **spec}, {"name": "more", "shape": [2, 3], "dtype": "bool"}],
        },
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    outputs = runtime.load(tmp_path).run(dict(zip(("x", "y"), small_models.INPUTS, strict=True)))
    np.testing.assert_allclose(outputs["out"], small_models.EXPECTED)
    assert outputs["more"].dtype == bool and list(outputs) == ["out", "more"]


def test_what_is_no_bundle_is_named(tmp_path):
    with pytest.raises(runtime.BundleError, match=r"no manifest\.json"):
        runtime.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("signature"), "no valid signature"),
        (lambda m: m["parameters"][0].update(offset=8), "parameter 0 at offset 8"),
        (lambda m: m["parameters"][0].update(shape=[64, 33]), "does not fit"),
        (lambda m: m.update(model="other.so"), r"missing its model file other\.so"),
    ],
)
def test_a_damaged_manifest_is_named(bundle, tmp_path, change, message):
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(runtime.BundleError, match=message):
        runtime.load(folder)


def test_parameters_outlive_the_model_as_long_as_an_output_needs_them(bundle, golden):
    import gc

    outputs = runtime.load(bundle).run([golden["x"], golden["unused"]])
    gc.collect()
    np.testing.assert_allclose(outputs["z"], golden["z"], rtol=1e-4, atol=1e-5)
