"""What is kept is what was put there; and nobody else can put anything there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from host.emulation import rootfs
from host.errors import DeviceError, DeviceFull, ModelFileError, UserError
from host.files import check_output_file, is_sealed, seal, write_whole, written_whole
from host.places import cache_root
from sdk.files.arrays import read_arrays, write_arrays
from sdk.report.page import StagedPage


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    made, kept = tmp_path / "made" / "lib.so", tmp_path / "kept" / "lib.so"
    for path in (made, kept):
        path.parent.mkdir()
    made.write_bytes(b"code" * 100)
    assert not is_sealed(kept)
    seal(made, kept)
    assert not made.exists()
    return kept


def test_a_sealed_file_is_taken(kept: Path) -> None:
    assert is_sealed(kept)
    assert kept.read_bytes() == b"code" * 100


@pytest.mark.parametrize(
    "alter",
    [
        lambda kept: kept.write_bytes(b"coda" + b"code" * 99),
        lambda kept: kept.write_bytes(b""),
        lambda kept: kept.unlink(),
        lambda kept: kept.with_name("lib.so.sha256").unlink(),
        lambda kept: kept.with_name("lib.so.sha256").write_text(""),
        lambda kept: kept.with_name("lib.so.sha256").write_bytes(b"\xff"),
    ],
    ids=["altered", "empty", "gone", "unsealed", "empty seal", "no text"],
)
def test_a_file_that_was_altered_counts_as_missing(kept: Path, alter) -> None:
    alter(kept)
    assert not is_sealed(kept)


def _folder(path: Path) -> Path:
    (path / "usr" / "bin").mkdir(parents=True)
    (path / "usr" / "bin" / "tool").write_bytes(b"program")
    (path / "empty").mkdir()
    (path / "bin").symlink_to("usr/bin")
    return path


@pytest.mark.parametrize(
    "alter",
    [
        lambda kept: (kept / "usr" / "bin" / "tool").write_bytes(b"Program"),
        lambda kept: (kept / "usr" / "bin" / "tool").chmod(0o4755),
        lambda kept: (kept / "usr" / "bin" / "more").write_bytes(b""),
        lambda kept: (kept / "empty").rmdir(),
        lambda kept: ((kept / "bin").unlink(), (kept / "bin").symlink_to("/usr/bin")),
        lambda kept: ((kept / "bin").unlink(), (kept / "bin").write_text("usr/bin")),
    ],
    ids=["content", "mode", "added", "removed", "link", "link to file"],
)
def test_a_folder_is_sealed_whole(tmp_path: Path, alter) -> None:
    kept = tmp_path / "kept"
    seal(_folder(tmp_path / "made"), kept)
    assert is_sealed(kept)
    alter(kept)
    assert not is_sealed(kept)


def test_a_root_file_system_that_was_altered_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    @contextlib.contextmanager
    def packages(recipe: rootfs.Recipe, scratch: Path) -> Iterator[None]:
        yield None

    monkeypatch.setattr(rootfs, "_packages", packages)
    made = []

    def make(archive: tarfile.TarFile, folder: Path) -> None:
        (folder / "kernel").write_bytes(b"kernel")
        made.append(folder)

    recipe = rootfs.Recipe("aarch64", "trixie", ("thing",))
    folder = rootfs.made("machine", recipe, make)
    assert rootfs.made("machine", recipe, make) == folder and len(made) == 1
    (folder / "kernel").write_bytes(b"Kernel")
    assert rootfs.made("machine", recipe, make) == folder and len(made) == 2
    assert (folder / "kernel").read_bytes() == b"kernel"
    assert rootfs.made("machine", recipe, make) == folder and len(made) == 2


def test_debians_packages_are_taken_with_their_signatures_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt refuses what is not signed by Debian's keys, unless it is told not to."""
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(" ".join(command).lower())
        return subprocess.CompletedProcess(command, 1, "", "E: nothing is fetched here")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(rootfs, "tool", lambda name: Path(name))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DeviceError, match="nothing is fetched here"):
        rootfs.made("root", rootfs.Recipe("aarch64", "trixie", ("thing",)), lambda archive, folder: None)
    [command] = commands
    for word in ("trusted", "unauthenticated", "insecure", "weak", "no-check", "gpg", "keyring"):
        assert word not in command


def test_the_cache_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = os.umask(0)
    try:
        assert stat.S_IMODE(cache_root().stat().st_mode) == 0o700
        # One that an older version, or a generous umask, has made is closed.
        cache_root().chmod(0o777)
        assert stat.S_IMODE(cache_root().stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_cache_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_root()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UserError, match="belongs to another user: set XDG_CACHE_HOME"):
        cache_root()


def test_a_cache_that_cannot_be_made_is_named_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_root() == tmp_path / "file" / "edgetlm"


def test_two_processes_that_write_one_file_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures.json"
    with written_whole(path) as partial:
        partial.write_text("ours")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        write_whole(path, b"theirs")
        assert path.read_text() == "theirs"
    assert path.read_text() == "ours"
    assert [one.name for one in tmp_path.iterdir()] == ["figures.json"]


def test_a_place_where_this_user_may_not_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_output_file(tmp_path / "new" / "figures.json", "--json")
    assert not (tmp_path / "new").exists()
    closed = tmp_path / "closed"
    closed.mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed and access(path, mode))
    with pytest.raises(UserError) as error:
        check_output_file(closed / "new" / "figures.json", "--json")
    words = f"figures.json cannot be written: you may not write in {closed}: name another place with --json"
    assert str(error.value).endswith(words)


def test_a_place_where_no_file_can_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(UserError, match=r"figures\.json cannot be written: .*: Read-only file system: name"):
        check_output_file(tmp_path / "figures.json", "--json")


def test_a_full_disk_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(DeviceFull, match="no space left while writing"):
        check_output_file(tmp_path / "figures.json", "--json")


def test_a_file_does_not_take_the_place_of_a_device_or_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (Path("/dev/null"), tmp_path / "pipe"):
        with pytest.raises(UserError, match=f"{place} is no plain file: name one with --json"):
            check_output_file(place, "--json")


def test_a_page_that_cannot_take_its_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    page = StagedPage(tmp_path / "new" / "report.html")
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError), page:
        page.write("text")
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_written_whole_into_new_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "new" / "out.npz"
    write_arrays(place, {"y": np.arange(3)})
    assert read_arrays(place)["y"].tolist() == [0, 1, 2]
    before = place.read_bytes()

    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("numpy.savez", fill)
    with pytest.raises(DeviceFull, match="no space left while writing"):
        write_arrays(place, {"y": np.arange(4)})
    assert place.read_bytes() == before and [one.name for one in place.parent.iterdir()] == ["out.npz"]


def _damaged(path: Path) -> None:
    """A packed array in which bits fell over."""
    np.savez_compressed(path, x=np.random.default_rng(0).random(1000))
    content = bytearray(path.read_bytes())
    content[100:2000] = b"\xff" * 1900
    path.write_bytes(content)


def _of_no_array(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.txt", "text")


def _of_another_method(path: Path) -> None:
    np.savez(path, x=np.arange(3))
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00\x00", b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00\x63")
    )


def _of_many_elements(path: Path) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)}
        )


def _of_half_a_header(path: Path) -> None:
    path.write_bytes(b"\x93NUMPY\x01\x00\x0a\x00{'descr':\n")


def _of_a_size_that_is_no_number(path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + bytes([len(header), 0]) + header + b"abcd")


_BROKEN = [
    _damaged,
    _of_no_array,
    _of_another_method,
    _of_many_elements,
    _of_half_a_header,
    _of_a_size_that_is_no_number,
]


@pytest.mark.parametrize("make", _BROKEN)
def test_arrays_that_are_damaged_are_one_line(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.npz")
    with pytest.raises(
        ModelFileError, match=r"x.npz is no whole .npz or .npy file of plain arrays: write it"
    ):
        read_arrays(tmp_path / "x.npz")


def test_a_small_file_of_arrays_does_not_unpack_to_more_than_a_device_takes(tmp_path: Path) -> None:
    """Before any of it is unpacked."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", "")
        archive.infolist()[0].file_size = 1 << 40
    with pytest.raises(ModelFileError, match=r"unpacks to 1099.5 GB, and a device takes 17.2 GB of inputs"):
        read_arrays(tmp_path / "x.npz")
