"""Wheels for boards: chosen by platform, taken for their hash alone, and looked at again before each use."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from host.payload import PayloadError, unpacking, wheels
from host.payload.engines import engine_parts
from host.payload.pins import pinned
from host.payload.python import runtime_parts, why_not
from host.payload.unpacking import WheelError, unpack
from host.payload.wheels import Part, Platform, unpacked

JETPACK_6 = Platform("aarch64", (3, 10), (2, 35))
TAG = "cp310-cp310-manylinux_2_28_aarch64"
THING = Part("thing==1.0", drop=("*/tests/*",))


def write_wheel(
    folder: Path,
    tag: str,
    files: dict[str, bytes],
    *,
    python: str = ">=3.9",
    recorded: dict[str, bytes] | None = None,
    entries: tuple[tuple[zipfile.ZipInfo | str, bytes], ...] = (),
) -> Path:
    """thing 1.0 with a RECORD of its files, or of others."""
    metadata = f"Metadata-Version: 2.1\nName: thing\nVersion: 1.0\nRequires-Python: {python}\n".encode()
    files = {
        **files,
        "thing-1.0.dist-info/METADATA": metadata,
        "thing-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\n",
    }
    record = "".join(
        f"{name},sha256={_record_hash(content)},{len(content)}\n"
        for name, content in {**files, **(recorded or {})}.items()
    )
    path = folder / f"thing-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (*files.items(), *entries):
            archive.writestr(name, content)
        archive.writestr("thing-1.0.dist-info/RECORD", record + "thing-1.0.dist-info/RECORD,,\n")
    return path


def _record_hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index without a network: pip finds what lies in a folder and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The hashes that are pinned, whatever the requirement."""
    digests: set[str] = set()
    monkeypatch.setattr(wheels, "pinned", lambda requirement: frozenset(digests))
    return digests


def test_a_part_is_chosen_by_platform_and_kept(index: Path, pins: set[str]) -> None:
    for tag, content in (
        (TAG, b"right"),
        ("cp311-cp311-manylinux_2_28_aarch64", b"other Python"),
        ("cp310-cp310-manylinux_2_28_x86_64", b"other machine"),
        ("cp310-cp310-manylinux_2_39_aarch64", b"too new"),
    ):
        wheel = write_wheel(index, tag, {"thing/lib.so": content, "thing/tests/big": b"x" * 1000})
        pins.add(_sha256(wheel))
    folder = unpacked(THING, JETPACK_6)
    assert (folder / "thing" / "lib.so").read_bytes() == b"right"
    assert not (folder / "thing" / "tests").exists()
    for wheel in index.iterdir():
        wheel.unlink()
    assert unpacked(THING, JETPACK_6) == folder


def _flip(path: Path) -> None:
    """One bit, with the size and the times as they were."""
    status = path.stat()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _kept(folder: Path) -> Path:
    [wheel] = folder.parent.glob("*.whl")
    return wheel


@pytest.mark.parametrize(
    "alter",
    [
        lambda folder: _flip(folder / "thing" / "lib.so"),
        lambda folder: _flip(_kept(folder)),
        lambda folder: (folder / "thing" / "lib.so").write_bytes(b"rig"),
        lambda folder: (folder / "thing" / "lib.so").unlink(),
        lambda folder: (folder / "thing" / "more.so").write_bytes(b"added"),
        lambda folder: (folder / "thing" / "link.so").symlink_to("lib.so"),
        lambda folder: _kept(folder).unlink(),
        lambda folder: _kept(folder).write_bytes(b""),
        lambda folder: _flip(folder / "thing-1.0.dist-info" / "RECORD"),
    ],
    ids=["bit", "bit-of-wheel", "short", "missing", "added", "link", "no-wheel", "empty-wheel", "record"],
)
def test_a_kept_part_that_was_altered_is_fetched_again(index: Path, pins: set[str], alter) -> None:
    wheel = write_wheel(index, TAG, {"thing/lib.so": b"right" * 100})
    pins.add(_sha256(wheel))
    folder = unpacked(THING, JETPACK_6)
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    alter(folder)
    assert unpacked(THING, JETPACK_6) == folder
    after = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before
    # Where there is none to fetch, what was altered is not used.
    wheel.unlink()
    alter(folder)
    with pytest.raises(PayloadError, match=r"no wheel of thing==1\.0 for aarch64"):
        unpacked(THING, JETPACK_6)


def test_what_another_process_has_made_meanwhile_stays(
    index: Path, pins: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pins.add(_sha256(write_wheel(index, TAG, {"thing/lib.so": b"right"})))
    begun: list[Path] = []
    kept: list[int] = []

    def meanwhile(wheel: Path, wants: Callable[[str], bool], folder: Path) -> None:
        unpack(wheel, wants, folder)
        if not begun:
            begun.append(folder)
            kept.append((unpacked(THING, JETPACK_6) / "thing" / "lib.so").stat().st_ino)

    monkeypatch.setattr(wheels, "unpack", meanwhile)
    kept.append((unpacked(THING, JETPACK_6) / "thing" / "lib.so").stat().st_ino)
    assert len(kept) == 2 and kept[0] == kept[1]


def test_a_wheel_and_its_files_replaced_together_are_thrown_away(index: Path, pins: set[str]) -> None:
    wheel = write_wheel(index, TAG, {"thing/lib.so": b"right"})
    pins.add(_sha256(wheel))
    folder = unpacked(THING, JETPACK_6)
    evil = write_wheel(folder.parent, TAG, {"thing/lib.so": b"wrong"})
    assert evil == _kept(folder)
    (folder / "thing" / "lib.so").write_bytes(b"wrong")
    with zipfile.ZipFile(evil) as archive:
        record = archive.read("thing-1.0.dist-info/RECORD")
    (folder / "thing-1.0.dist-info" / "RECORD").write_bytes(record)
    assert (unpacked(THING, JETPACK_6) / "thing" / "lib.so").read_bytes() == b"right"


def test_a_wheel_of_another_hash_is_refused(index: Path, pins: set[str], tmp_path: Path) -> None:
    write_wheel(index, TAG, {"thing/lib.so": b"altered on the way"})
    pins.add(hashlib.sha256(b"the one that was looked at").hexdigest())
    with pytest.raises(PayloadError, match="not the one that this release pins by its hash"):
        unpacked(THING, JETPACK_6)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_version_without_a_hash_is_refused() -> None:
    with pytest.raises(PayloadError, match=r"no hash of thing==1\.0 is known"):
        unpacked(THING, JETPACK_6)


def test_libraries_run_beside_a_python_that_their_package_is_too_new_for(index: Path, pins: set[str]) -> None:
    tag = "py3-none-manylinux_2_28_aarch64"
    pins.add(_sha256(write_wheel(index, tag, {"thing/lib.so": b"any"}, python=">=3.11")))
    folder = unpacked(Part("thing==1.0", any_python=True), JETPACK_6)
    assert (folder / "thing" / "lib.so").read_bytes() == b"any"
    with pytest.raises(PayloadError, match="thing"):
        unpacked(Part("thing==1.0"), JETPACK_6)


def test_a_host_without_a_network_is_told_so(index: Path, pins: set[str]) -> None:
    pins.add("0" * 64)
    with pytest.raises(PayloadError, match="connect this host"):
        unpacked(Part("thing==2.0"), JETPACK_6)


def test_a_wheel_that_is_none_is_refused(index: Path, pins: set[str]) -> None:
    wheel = index / "thing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK but no archive")
    pins.add(_sha256(wheel))
    with pytest.raises(PayloadError, match="thing"):
        unpacked(Part("thing==1.0"), JETPACK_6)


def _link() -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("thing/link.so")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/outside", "thing/../../outside", "thing//x", "thing/./x", "a\\b", "a\nb", _link()],
    ids=repr,
)
def test_an_entry_that_leads_elsewhere_is_refused(tmp_path: Path, name: zipfile.ZipInfo | str) -> None:
    wheel = write_wheel(tmp_path, TAG, {"thing/lib.so": b"x"}, entries=((name, b"out"),))
    with pytest.raises(WheelError, match="not unpacked"):
        unpack(wheel, lambda name: True, tmp_path / "deep" / "files")
    assert not list(tmp_path.rglob("outside*"))
    assert not [path for path in (tmp_path / "deep").rglob("*") if not path.is_dir()]


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        wheel = write_wheel(tmp_path, TAG, {"thing/lib.so": b"x"}, entries=(("thing/lib.so", b"y"),))
    with pytest.raises(WheelError, match="two entries of one name"):
        unpack(wheel, lambda name: True, tmp_path / "files")


def test_a_file_of_another_hash_than_recorded_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, TAG, {"thing/lib.so": b"x"}, recorded={"thing/lib.so": b"y"})
    with pytest.raises(WheelError, match=r"thing/lib\.so has another hash"):
        unpack(wheel, lambda name: True, tmp_path / "files")


def test_what_unpacks_to_more_than_is_allowed_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "thing-1.0.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("thing/zeros", bytes(50 << 20))
        archive.writestr("thing-1.0.dist-info/RECORD", "")
    assert path.stat().st_size < 1 << 20
    monkeypatch.setattr(unpacking, "MAX_BYTES", 4 << 20)
    with pytest.raises(WheelError, match="more than 4194304 bytes"):
        unpack(path, lambda name: True, tmp_path / "files")
    assert (tmp_path / "files" / "thing" / "zeros").stat().st_size <= 4 << 20
    monkeypatch.setattr(unpacking, "MAX_FILES", 1)
    with pytest.raises(WheelError, match="2 entries, at most 1"):
        unpack(path, lambda name: True, tmp_path / "more")


@pytest.mark.parametrize("architecture", ["aarch64", "x86_64"])
@pytest.mark.parametrize("minor", range(8, 15))
def test_everything_that_a_board_may_be_sent_is_pinned(architecture: str, minor: int) -> None:
    platform = Platform(architecture, (3, minor), (2, 31))
    parts = [part for engine in ("onnxruntime", "litert", "ncnn") for part in engine_parts(engine, platform)]
    parts += runtime_parts(cuda=True) if why_not(platform) is None else ()
    for part in parts:
        assert all(len(digest) == 64 for digest in pinned(part.requirement)), part.requirement
