"""Bundles in archives: the same bundle, or refused before anything of it is unpacked."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from host import bundle
from host.errors import BundleError, ModelFileError
from tests.signing import entry as file_entry
from tests.signing import reseal, sign


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
