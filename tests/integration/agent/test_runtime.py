"""`device_agent.runtime` as an application uses it: no host, no tvm package, no NumPy needed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import device_agent.runtime as runtime
from device_agent.contract.trust import TrustStore
from device_agent.execute import ffi
from host.keys import host_key
from tests.integration.agent import small_models
from tests.signing import reseal, seal, sign, trust

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("trusted_here")

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
    tensor = ffi.empty((4, 64), "float32")
    ffi.copy_from_buffer(tensor, golden["x"])

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
    folder = tmp_path / "bundle"
    folder.mkdir()
    small_models.write_onnx(folder / "model.onnx")
    spec = {"shape": [2, 3], "dtype": "float32"}
    signature = {
        "inputs": [{"name": "x", **spec}, {"name": "y", **spec}],
        "outputs": [{"name": "out", **spec}, {"name": "more", "shape": [2, 3], "dtype": "bool"}],
    }
    seal(folder, backend="onnxruntime", model="model.onnx", signature=signature)
    outputs = runtime.load(folder).run(dict(zip(("x", "y"), small_models.INPUTS, strict=True)))
    np.testing.assert_allclose(outputs["out"], small_models.EXPECTED)
    assert outputs["more"].dtype == bool and list(outputs) == ["out", "more"]


def test_what_is_no_bundle_is_named(tmp_path):
    with pytest.raises(runtime.BundleError, match=r"no manifest\.json"):
        runtime.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("signature"), "the signature is not an object"),
        (lambda m: m["parameters"][0].update(offset=8), "parameter 0 is not aligned"),
        (lambda m: m["parameters"][0].update(offset=-64), "the offset of parameter 0 is -64"),
        (lambda m: m["parameters"][0].update(offset=64), "parameter 0 does not fit"),
        (lambda m: m["parameters"][0].update(shape=[64, 33]), "has not the size of its shape"),
        (lambda m: m["parameters"][0].update(shape=[-64, -32]), "a dimension of parameter 0 is -64"),
        (lambda m: m.update(model="other.so"), "its model is none of its files"),
        (lambda m: m.update(model="/usr/lib/libz.so"), "its model is none of its files"),
        (lambda m: m.update(threads=10**6), "threads is 1000000, not a whole number from 1 to 1024"),
    ],
)
def test_a_damaged_manifest_is_named(bundle, tmp_path, change, message):
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    sign(folder, json.dumps(manifest).encode())
    with pytest.raises(runtime.BundleError, match=message):
        runtime.load(folder)


def test_parameters_outlive_the_model_as_long_as_an_output_needs_them(bundle, golden):
    import gc

    outputs = runtime.load(bundle).run([golden["x"], golden["unused"]])
    gc.collect()
    np.testing.assert_allclose(outputs["z"], golden["z"], rtol=1e-4, atol=1e-5)


@pytest.fixture
def copy(bundle, tmp_path):
    """The small bundle, to be changed."""
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def flip(path, place=-1):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["lib.so", "params.bin", "golden.npz"])
def test_one_flipped_bit_is_found_before_anything_runs(copy, name):
    runtime.load(copy)
    flip(copy / name, (copy / name).stat().st_size // 2)
    with pytest.raises(runtime.BundleError, match=f"{name} does not match the hash"):
        runtime.load(copy)


def test_a_change_is_found_although_the_bundle_was_checked_before(copy, trusted_here):
    # Files of a while ago, which are remembered once they were checked.
    before = time.time() - 3600
    for file in copy.iterdir():
        os.utime(file, (before, before))
    time.sleep(2.1)  # the time of the last change of status cannot be set
    runtime.load(copy)
    version = hashlib.sha256((copy / "manifest.json").read_bytes()).hexdigest()
    assert (trusted_here.parent / "verified" / version).is_file()
    status = (copy / "lib.so").stat()
    flip(copy / "lib.so", status.st_size // 2)
    os.utime(copy / "lib.so", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (copy / "lib.so").stat().st_mtime_ns == status.st_mtime_ns
    with pytest.raises(runtime.BundleError, match=r"lib\.so does not match the hash"):
        runtime.load(copy)


def test_a_changed_manifest_needs_another_signature(copy):
    text = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(text.replace('"threads": 1', '"threads": 2'))
    with pytest.raises(runtime.BundleError, match="its signature is not that of its manifest"):
        runtime.load(copy)
    with pytest.raises(runtime.BundleError, match="its signature is not that of its manifest"):
        runtime.load(copy, trust="unsigned")


def test_nothing_else_lies_in_a_bundle(copy):
    (copy / "extra.so").write_bytes(b"x")
    with pytest.raises(runtime.BundleError, match=r"holds extra\.so, which its manifest does not name"):
        runtime.load(copy)


def test_a_symbolic_link_is_no_file_of_a_bundle(copy, tmp_path):
    (copy / "lib.so").rename(tmp_path / "elsewhere.so")
    (copy / "lib.so").symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(runtime.BundleError, match=r"lib\.so is not a regular file"):
        runtime.load(copy)


def test_an_unsigned_bundle_runs_only_if_asked_for_and_with_a_warning(copy, golden):
    (copy / "manifest.sig").unlink()
    with pytest.raises(runtime.BundleError, match=r"it is not signed; .* trust='unsigned'"):
        runtime.load(copy)
    with pytest.warns(UserWarning, match="signed by nobody, is loaded without trust"):
        model = runtime.load(copy, trust="unsigned")
    assert model.run([golden["x"], golden["unused"]])
    with pytest.raises(runtime.BundleError, match="trust is one of signed, unsigned, not all"):
        runtime.load(copy, trust="all")


def test_a_strangers_bundle_is_refused_by_name(copy, tmp_path, trusted_here):
    stranger = host_key(tmp_path / "stranger")
    reseal(copy, stranger)
    with pytest.raises(runtime.BundleError, match=f"{stranger.name}.*not trusted here.*{stranger.public}"):
        runtime.load(copy)
    with pytest.warns(UserWarning, match="is loaded without trust"):
        runtime.load(copy, trust="unsigned")
    trust(trusted_here, stranger)
    assert runtime.load(copy).warning is None


def test_what_was_revoked_does_not_run_even_unsigned(copy, trusted_here):
    own = host_key()
    TrustStore(str(trusted_here)).revoke(own.public)
    for level in ("signed", "unsigned"):
        with pytest.raises(runtime.BundleError, match="whose key was revoked on"):
            runtime.load(copy, trust=level)
    trust(trusted_here)
    version = hashlib.sha256((copy / "manifest.json").read_bytes()).hexdigest()
    TrustStore(str(trusted_here)).revoke(version)
    with pytest.raises(runtime.BundleError, match=f"version {version[:16]} was revoked on"):
        runtime.load(copy)


def test_keys_that_others_can_write_are_no_keys(copy, trusted_here):
    trusted_here.chmod(0o666)
    with pytest.raises(runtime.BundleError, match="can be written to by others"):
        runtime.load(copy)


def test_keys_can_lie_elsewhere(copy, tmp_path, monkeypatch):
    monkeypatch.setenv("EDGETLM_STORE", str(tmp_path / "nothing"))
    with pytest.raises(runtime.BundleError, match="not trusted here"):
        runtime.load(copy)
    trust(tmp_path / "mine" / "trust.json")
    runtime.load(copy, keys=tmp_path / "mine" / "trust.json")
