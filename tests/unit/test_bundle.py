from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from host import bundle
from host.errors import BundleError, ModelFileError
from host.manifest import DecoderPart, Draft, Origin, StateTensor, signature_part
from host.model import GoldenCase, Signature, TensorSpec
from host.options import Backend
from tests.signing import entry as file_entry
from tests.signing import reseal, sign

SIGNATURE = Signature((TensorSpec("x", (2, 3), "float32"),), (TensorSpec("y", (2,), "int64"),))
PARAMETERS: tuple[np.ndarray, ...] = (
    np.arange(5, dtype=np.float32),
    np.array(7, dtype=np.int64),
    np.zeros((0, 3), dtype=np.float32),
    np.arange(12, dtype=np.float16).reshape(3, 4).T,
)
GOLDEN = tuple(
    GoldenCase((np.full((2, 3), case, np.float32),), (np.array([case, -case]),)) for case in range(3)
)


def draft(backend: Backend = "tvm") -> Draft:
    return Draft(
        name="net",
        backend=backend,
        signature=signature_part(SIGNATURE),
        origin=Origin(name="net.onnx", format="onnx", content_hash="0" * 64),
        command="sdk deploy net.onnx",
    )


@pytest.fixture
def made(tmp_path: Path) -> Path:
    library = tmp_path / "some.so"
    library.write_bytes(b"not really a library")
    bundle.write_tvm(tmp_path / "bundle", draft(), library, iter(PARAMETERS), GOLDEN)
    return tmp_path / "bundle"


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


def test_a_zip_holds_the_same_bundle(made: Path, tmp_path: Path) -> None:
    archive = tmp_path / "net.zip"
    bundle.pack(made, archive)
    assert bundle.load(archive) == bundle.load(made)
    unpacked = bundle.unpacked(archive, tmp_path / "scratch")
    assert bundle.load(unpacked) == bundle.load(made)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_damaged_zip_is_found(made: Path, tmp_path: Path) -> None:
    (made / "lib.so").write_bytes(b"another")
    archive = tmp_path / "net.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in made.iterdir():
            out.write(file, file.name)
    with pytest.raises(BundleError, match=r"lib\.so does not match"):
        bundle.load(archive)


@pytest.mark.parametrize("place", ["/tmp/edgetlm-elsewhere", "../../../elsewhere", "elsewhere/.."])
def test_a_zip_writes_where_it_is_told_to_and_nowhere_else(made: Path, tmp_path: Path, place: str) -> None:
    (made / "authorized_keys").write_text("ssh-ed25519 AAAA")
    files = json.loads((made / "manifest.json").read_text())["files"]
    reseal(made, name=place, files={**files, "authorized_keys": file_entry(b"ssh-ed25519 AAAA")})
    bundle.pack(made, tmp_path / "net.zip")
    scratch = tmp_path / "deep" / "scratch"
    scratch.mkdir(parents=True)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(BundleError, match="its name is not made of letters"):
        bundle.unpacked(tmp_path / "net.zip", scratch)
    assert set(tmp_path.rglob("*")) == before
    assert not Path("/tmp/edgetlm-elsewhere").exists()


def test_a_zip_is_unpacked_under_a_name_of_ours(made: Path, tmp_path: Path) -> None:
    bundle.pack(made, tmp_path / "net.zip")
    unpacked = bundle.unpacked(tmp_path / "net.zip", tmp_path)
    assert unpacked.parent == tmp_path and unpacked.name != "net"


def zip_of(archive: Path, entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(archive, "w", compression) as out:
        for name, content in entries.items():
            out.writestr(name, content)
    return archive


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "sub/x", "extra.so"])
def test_a_zip_holds_nothing_but_the_bundle(made: Path, tmp_path: Path, name: str) -> None:
    entries = {file.name: file.read_bytes() for file in made.iterdir()}
    archive = zip_of(tmp_path / "net.zip", {**entries, name: b"x"})
    for read in (bundle.load, bundle.runnable_bytes, lambda path: bundle.unpacked(path, tmp_path)):
        with pytest.raises(BundleError, match="which its manifest does not name"):
            read(archive)


def test_a_zip_that_unpacks_to_much_more_is_refused_before_it_is(made: Path, tmp_path: Path) -> None:
    entries = {file.name: file.read_bytes() for file in made.iterdir()}
    swollen = bytes(300 << 20)
    fields = json.loads(entries["manifest.json"])
    fields["files"]["golden.npz"] = file_entry(swollen)
    folder = tmp_path / "again"
    folder.mkdir()
    sign(folder, json.dumps(fields).encode())
    entries |= {file.name: file.read_bytes() for file in folder.iterdir()}
    archive = zip_of(tmp_path / "net.zip", {**entries, "golden.npz": swollen})
    assert archive.stat().st_size < 1 << 20
    with pytest.raises(BundleError, match=r"unpack to 3145.*more than 100 times as much"):
        bundle.unpacked(archive, tmp_path)


def test_a_manifest_that_swells_is_not_read_whole(made: Path, tmp_path: Path) -> None:
    entries = {file.name: file.read_bytes() for file in made.iterdir()}
    archive = zip_of(tmp_path / "net.zip", {**entries, "manifest.json": b" " * (64 << 20)})
    with pytest.raises(BundleError, match=r"manifest\.json has more than 16777216 bytes"):
        bundle.load(archive)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_is_packed_as_we_pack_them(made: Path, tmp_path: Path, method: int) -> None:
    entries = {file.name: file.read_bytes() for file in made.iterdir()}
    with pytest.raises(BundleError, match="packed in another way"):
        bundle.load(zip_of(tmp_path / "net.zip", entries, method))


@pytest.mark.parametrize("moved", [1, 10, 1 << 20])
def test_a_zip_whose_members_lie_before_it_is_damaged(made: Path, tmp_path: Path, moved: int) -> None:
    bundle.pack(made, tmp_path / "net.zip")
    data = bytearray((tmp_path / "net.zip").read_bytes())
    place = data.rindex(b"PK\5\6") + 16  # where the directory says that it begins
    data[place : place + 4] = struct.pack("<I", struct.unpack_from("<I", data, place)[0] + moved)
    (tmp_path / "net.zip").write_bytes(bytes(data))
    for read in (bundle.load, bundle.runnable_bytes, lambda path: bundle.unpacked(path, tmp_path)):
        with pytest.raises((BundleError, ModelFileError)):
            read(tmp_path / "net.zip")


def test_a_member_that_is_longer_than_it_says_is_found(made: Path, tmp_path: Path) -> None:
    entries = {file.name: file.read_bytes() for file in made.iterdir()}
    archive = zip_of(tmp_path / "net.zip", {**entries, "lib.so": entries["lib.so"] + b"more"})
    with pytest.raises(BundleError, match=r"lib\.so does not match the hash"):
        bundle.unpacked(archive, tmp_path)


@given(st.integers(0, 2**32), st.binary(min_size=1, max_size=8))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_zip_with_other_bytes_is_refused_or_the_same(
    made: Path, tmp_path: Path, place: int, content: bytes
) -> None:
    archive = tmp_path / "net.zip"
    if not archive.exists():
        bundle.pack(made, archive)
    data = bytearray(archive.read_bytes())
    start = place % len(data)
    data[start : start + len(content)] = content
    changed = tmp_path / "changed.zip"
    changed.write_bytes(bytes(data))
    try:
        found = bundle.load(changed)
    except (BundleError, ModelFileError) as error:
        assert "\n" not in str(error)
    else:
        assert found == bundle.load(made)


def test_compressed_golden_cases_are_refused(made: Path) -> None:
    with np.load(made / "golden.npz") as arrays:
        np.savez_compressed(made / "golden.npz", **dict(arrays))
    files = json.loads((made / "manifest.json").read_text())["files"]
    reseal(made, files={**files, "golden.npz": file_entry((made / "golden.npz").read_bytes())})
    manifest = bundle.load(made)
    with pytest.raises(BundleError, match=r"golden cases cannot be read \(they are compressed\)"):
        bundle.golden_cases(made, manifest)


def test_the_content_hash_covers_the_model_and_not_the_figures(made: Path, tmp_path: Path) -> None:
    before = bundle.load(made)
    after = bundle.update(made, before, measured={"latency_ms": 3})
    assert bundle.load(made).measured == {"latency_ms": 3}
    assert after.content_hash == before.content_hash
    other = tmp_path / "other.so"
    other.write_bytes(b"another library")
    changed = bundle.write_tvm(tmp_path / "b2", draft(), other, PARAMETERS, GOLDEN)
    assert changed.content_hash != before.content_hash


def test_an_engine_bundle_holds_the_model_file(tmp_path: Path) -> None:
    model = tmp_path / "pinned"
    model.write_bytes(b"onnx bytes")
    manifest = bundle.write_engine(tmp_path / "bundle", draft("onnxruntime"), model, GOLDEN)
    assert bundle.load(tmp_path / "bundle") == manifest
    assert (tmp_path / "bundle" / manifest.model).read_bytes() == b"onnx bytes"
    assert manifest.parameters == ()


def test_writing_does_not_hold_all_parameters_at_once(tmp_path: Path) -> None:
    program = f"""
import resource
import numpy as np
from pathlib import Path
from host import bundle
from tests.unit.test_bundle import GOLDEN, draft
folder = Path({str(tmp_path)!r})
(folder / "lib").write_bytes(b"x")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
parameters = (np.full(4 << 20, i, np.float32) for i in range(12))
bundle.write_tvm(folder / "bundle", draft(), folder / "lib", parameters, GOLDEN)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # 12 arrays of 16 MiB each: two may be alive while one follows the other.
    assert int(done.stdout) < 64 << 10


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    library = tmp_path / "some.so"
    library.write_bytes(b"x")
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
from pathlib import Path
import numpy as np
from host import bundle
from host.errors import DeviceFull
from tests.unit.test_bundle import GOLDEN, draft
folder = Path({str(tmp_path)!r})
try:
    bundle.write_tvm(folder / "b", draft(), folder / "some.so", [np.zeros(1 << 20)], GOLDEN)
except DeviceFull as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no space left while writing")


def test_a_variant_shares_what_does_not_differ(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(b"another library")
    first = bundle.load(made)
    fewer = bundle.write_variant(tmp_path / "fewer", made, threads=3)
    variant = bundle.write_variant(tmp_path / "variant", made, threads=1, library=other)
    assert bundle.load(tmp_path / "fewer") == fewer
    assert bundle.load(tmp_path / "variant") == variant
    assert (fewer.threads, variant.threads, variant.name) == (3, 1, first.name)
    assert len({first.content_hash, fewer.content_hash, variant.content_hash}) == 3
    assert variant.parameters == first.parameters
    assert (tmp_path / "variant" / "lib.so").read_bytes() == b"another library"
    for name in ("params.bin", "golden.npz"):
        assert (tmp_path / "variant" / name).samefile(made / name)
    # The others stay whole when one goes.
    assert bundle.load(made) == first


def test_what_a_device_runs_is_without_what_is_for_checks(made: Path) -> None:
    expected = sum((made / name).stat().st_size for name in ("lib.so", "params.bin"))
    assert bundle.runnable_bytes(made) == expected
    bundle.pack(made, made.with_suffix(".zip"))
    assert bundle.runnable_bytes(made.with_suffix(".zip")) == expected


def language_model() -> Draft:
    tokens = Signature(
        (TensorSpec("tokens", (1,), "int32"), TensorSpec("position", (1,), "int32")),
        (TensorSpec("logits", (1, 8), "float32"),),
    )
    changes = {
        "signature": signature_part(tokens),
        "state": (StateTensor(name="key_0", shape=(2, 4), dtype="float32"),),
        "decoder": DecoderPart(context=32, chunk=16, vocabulary=8, end_tokens=(7,)),
    }
    return draft().model_copy(update=changes)


@pytest.mark.parametrize("written", [True, False])
def test_state_has_a_schema_of_its_own_and_a_tokenizer_is_a_file(written: bool, tmp_path: Path) -> None:
    library, tokenizer = tmp_path / "some.so", tmp_path / "any.json"
    library.write_bytes(b"not really a library")
    tokenizer.write_text("{}")
    folder = tmp_path / "bundle"
    given = tokenizer if written else b"{}"
    bundle.write_tvm(folder, language_model(), library, PARAMETERS, (), tokenizer=given)
    fields = json.loads((folder / "manifest.json").read_text())
    assert fields["schema"] == "edgetlm.bundle/3"
    assert fields["state"] == [{"name": "key_0", "shape": [2, 4], "dtype": "float32"}]
    assert fields["decoder"] == {"context": 32, "chunk": 16, "vocabulary": 8, "end_tokens": [7]}
    manifest = bundle.load(folder)
    assert "tokenizer.json" in manifest.files and manifest.decoder is not None
    # A variant of it keeps all of that.
    changed = bundle.write_variant(tmp_path / "variant", folder, threads=2)
    assert (changed.bundle_schema, changed.state, changed.decoder) == (
        manifest.bundle_schema,
        manifest.state,
        manifest.decoder,
    )
    assert (tmp_path / "variant" / "tokenizer.json").read_text() == "{}"


def test_a_bundle_without_state_says_nothing_of_it(made: Path) -> None:
    fields = json.loads((made / "manifest.json").read_text())
    assert fields["schema"] == "edgetlm.bundle/2"
    assert not {"state", "decoder"} & set(fields)
