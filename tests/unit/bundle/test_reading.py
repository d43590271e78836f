"""What a bundle gives back, and what is refused when one is read."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.errors import BundleError, ModelFileError
from host.manifest import Manifest
from tests.signing import entry as file_entry
from tests.signing import reseal
from tests.unit.bundle.samples import GOLDEN, PARAMETERS, SIGNATURE


def test_parameters_can_be_mapped_from_the_file(made: Path) -> None:
    manifest = bundle.load(made)
    raw = (made / "params.bin").read_bytes()
    assert len(manifest.parameters) == len(PARAMETERS)
    for entry, array in zip(manifest.parameters, PARAMETERS, strict=True):
        assert entry.offset % bundle.ALIGNMENT == 0
        stored = np.frombuffer(raw, entry.dtype, array.size, entry.offset).reshape(entry.shape)
        np.testing.assert_array_equal(stored, array)


def test_golden_cases_come_back(made: Path) -> None:
    manifest = bundle.load(made)
    cases = bundle.golden_cases(made, manifest)
    assert manifest.typed_signature() == SIGNATURE
    assert len(cases) == len(GOLDEN)
    for read, written in zip(cases, GOLDEN, strict=True):
        np.testing.assert_array_equal(read.inputs[0], written.inputs[0])
        np.testing.assert_array_equal(read.outputs[0], written.outputs[0])
        assert read.share(0) == written.share(0)


@pytest.mark.parametrize("name", ["lib.so", "params.bin", "golden.npz"])
def test_a_changed_file_is_found(made: Path, name: str) -> None:
    content = bytearray((made / name).read_bytes())
    content[-1] ^= 1
    (made / name).write_bytes(bytes(content))
    with pytest.raises(BundleError, match=f"{name} does not match the hash"):
        bundle.load(made)


def test_a_missing_file_is_found(made: Path) -> None:
    (made / "params.bin").unlink()
    with pytest.raises(BundleError, match=r"lacks params\.bin"):
        bundle.load(made)


@pytest.mark.parametrize("name", ["../lib.so", "/etc/passwd", "sub/lib.so", "..", ".x", "", "x\n", "a\\b"])
def test_a_manifest_cannot_name_files_outside(made: Path, name: str) -> None:
    files = json.loads((made / "manifest.json").read_text())["files"]
    reseal(made, files={**files, name: {"size": 0, "sha256": "0" * 64}})
    with pytest.raises(BundleError, match="outside of the bundle"):
        bundle.load(made)


@pytest.mark.parametrize("name", ["/tmp/elsewhere", "../../elsewhere", "..", "a/b", "", "x\n", "\x1b[31m"])
def test_a_manifest_cannot_name_the_bundle_anything_but_a_name(made: Path, name: str) -> None:
    reseal(made, name=name)
    with pytest.raises(BundleError, match="its name is not made of letters"):
        bundle.load(made)


def test_a_changed_manifest_needs_another_signature(made: Path) -> None:
    text = (made / "manifest.json").read_text()
    (made / "manifest.json").write_text(text.replace("deploy net", "deploy not"))
    with pytest.raises(BundleError, match="its signature is not that of its manifest"):
        bundle.load(made)


def test_what_no_manifest_names_is_refused(made: Path) -> None:
    (made / "authorized_keys").write_text("x")
    with pytest.raises(BundleError, match="holds authorized_keys, which its manifest does not name"):
        bundle.load(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "edgetlm.bundle/9"}', r"it has the schema edgetlm\.bundle/9, this version reads"),
        ('{"schema": "edgetlm.bundle/2"}', "its name is not made of letters"),
        ("{", "is not valid JSON"),
        ("[]", "it has the schema None"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"schema": NaN}', "is not valid JSON"),
    ],
)
def test_a_foreign_manifest_is_refused_in_one_line(made: Path, text: str, message: str) -> None:
    (made / "manifest.json").write_text(text)
    with pytest.raises(BundleError, match=message) as refusal:
        bundle.load(made)
    assert "\n" not in str(refusal.value)


def test_what_is_no_bundle_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").mkdir()
    for name in ("text", "empty", "absent"):
        with pytest.raises(ModelFileError):
            bundle.load(tmp_path / name)


def test_compressed_golden_cases_are_refused(made: Path) -> None:
    with np.load(made / "golden.npz") as arrays:
        np.savez_compressed(made / "golden.npz", **dict(arrays))
    with pytest.raises(BundleError, match=r"golden cases cannot be read \(they are compressed\)"):
        bundle.golden_cases(made, _resealed(made))


def test_golden_cases_with_half_a_header_are_refused(made: Path) -> None:
    with zipfile.ZipFile(made / "golden.npz", "w") as archive:
        archive.writestr("case0_input0.npy", b"\x93NUMPY\x01\x00\x0a\x00{'descr':\n")
    with pytest.raises(BundleError, match="golden cases cannot be read"):
        bundle.golden_cases(made, _resealed(made))


def _resealed(made: Path) -> Manifest:
    files = json.loads((made / "manifest.json").read_text())["files"]
    reseal(made, files={**files, "golden.npz": file_entry((made / "golden.npz").read_bytes())})
    return bundle.load(made)


def test_what_a_device_runs_is_without_what_is_for_checks(made: Path) -> None:
    expected = sum((made / name).stat().st_size for name in ("lib.so", "params.bin"))
    assert bundle.runnable_bytes(made) == expected
    bundle.pack(made, made.with_suffix(".zip"))
    assert bundle.runnable_bytes(made.with_suffix(".zip")) == expected
