from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from host.deploy import folders
from host.deploy import staging as staging_module
from host.deploy.staging import Staging
from host.errors import UserError


def make_bundle(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(text)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_bundle_appears_only_when_it_is_committed(tmp_path: Path) -> None:
    with Staging(tmp_path / "out" / "net") as staging:
        made = make_bundle(staging.path("tvm"), "{}")
        assert names(tmp_path / "out") == [staging.folder.name]
        staging.commit(staging.prepare(made))
    assert names(tmp_path / "out") == ["net"]
    assert (tmp_path / "out" / "net" / "manifest.json").read_text() == "{}"


def test_a_failure_leaves_nothing_and_keeps_the_old_bundle(tmp_path: Path) -> None:
    make_bundle(tmp_path / "net", "old")
    with pytest.raises(ZeroDivisionError), Staging(tmp_path / "net") as staging:
        make_bundle(staging.path("tvm"), "new")
        raise ZeroDivisionError
    assert names(tmp_path) == ["net"]
    assert (tmp_path / "net" / "manifest.json").read_text() == "old"


def test_folders_that_were_made_for_it_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(ZeroDivisionError), Staging(tmp_path / "there" / "a" / "b"):
        raise ZeroDivisionError
    assert names(tmp_path) == ["there"]
    assert names(tmp_path / "there") == []


def test_a_new_bundle_replaces_the_old(tmp_path: Path) -> None:
    make_bundle(tmp_path / "net", "old")
    with Staging(tmp_path / "net") as staging:
        staging.commit(staging.prepare(make_bundle(staging.path("tvm"), "new")))
    assert names(tmp_path) == ["net"]
    assert (tmp_path / "net" / "manifest.json").read_text() == "new"


def test_a_zip_is_packed(tmp_path: Path) -> None:
    with Staging(tmp_path / "net.zip") as staging:
        staging.commit(staging.prepare(make_bundle(staging.path("tvm"), "{}")))
    assert names(tmp_path) == ["net.zip"]


def test_other_peoples_folders_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    for place in ("photos", "photos/cat.jpg"):
        with pytest.raises(UserError, match="choose another"):
            Staging(tmp_path / place)


def test_of_commands_that_write_one_place_the_last_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path / "net", "old")
    rename, others = Path.rename, ["first", "second"]

    def slow(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        if others and path == tmp_path / "net":
            make_bundle(tmp_path / "net", others.pop())
        return renamed

    with Staging(tmp_path / "net") as staging:
        made = staging.prepare(make_bundle(staging.path("tvm"), "new"))
        monkeypatch.setattr(Path, "rename", slow)
        staging.commit(made)
    assert not others
    assert names(tmp_path) == ["net"]
    assert (tmp_path / "net" / "manifest.json").read_text() == "new"


def test_a_bundle_that_cannot_take_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path / "net", "old")
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name == "tvm":
            raise OSError(errno.EIO, "the disk is broken")
        return rename(path, target)

    with pytest.raises(OSError, match="broken"), Staging(tmp_path / "net") as staging:
        made = staging.prepare(make_bundle(staging.path("tvm"), "new"))
        monkeypatch.setattr(Path, "rename", refuse)
        staging.commit(made)
    assert names(tmp_path) == ["net"]
    assert (tmp_path / "net" / "manifest.json").read_text() == "old"


def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(UserError, match=r"file is no folder: name another place with --output"):
        Staging(tmp_path / "file" / "net.zip", "--output")


def test_what_a_killed_command_left_is_removed_and_gets_into_no_bundle(tmp_path: Path) -> None:
    """In a container the next command has the number of the one that was killed, too."""
    for name in (f".net.{os.getpid()}.part", ".net.1.part"):
        make_bundle(tmp_path / name / "tvm", "of the killed one")
    (tmp_path / ".other.1.part").mkdir()
    with Staging(tmp_path / "net") as staging:
        assert not staging.path("tvm").exists()
        assert names(tmp_path) == sorted([staging.folder.name, ".other.1.part"])
        staging.commit(staging.prepare(make_bundle(staging.path("tvm"), "new")))
    assert names(tmp_path) == [".other.1.part", "net"]


def test_a_bundle_that_a_killed_command_had_moved_away_is_put_back(tmp_path: Path) -> None:
    make_bundle(tmp_path / ".net.1.part" / "old-0", "old")
    with pytest.raises(ZeroDivisionError), Staging(tmp_path / "net"):
        raise ZeroDivisionError
    assert names(tmp_path) == ["net"]
    assert (tmp_path / "net" / "manifest.json").read_text() == "old"


def test_what_commands_of_other_destinations_left_is_not_touched(tmp_path: Path) -> None:
    """A name may begin with another one's."""
    make_bundle(tmp_path / ".net.v2.0a1b2c3d.part" / "old-00", "of another")
    with Staging(tmp_path / "net"):
        pass
    assert names(tmp_path) == [".net.v2.0a1b2c3d.part"]


def test_a_folder_that_is_taken_for_one_that_was_left_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making and the lock another command may begin."""

    def make_folders(folder: Path) -> tuple[Path, ...]:
        made = folders.make_folders(folder)
        monkeypatch.undo()
        with Staging(tmp_path / "net"):
            assert not folder.exists()
        return made

    monkeypatch.setattr(staging_module, "make_folders", make_folders)
    with Staging(tmp_path / "net") as staging:
        staging.commit(staging.prepare(make_bundle(staging.path("tvm"), "new")))
    assert names(tmp_path) == ["net"]


def test_an_interruption_between_two_bundles_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path / "net", "old")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        rename(self, target)
        monkeypatch.undo()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Staging(tmp_path / "net") as staging:
        prepared = staging.prepare(make_bundle(staging.path("tvm"), "new"))
        monkeypatch.setattr(Path, "rename", interrupted)
        staging.commit(prepared)
    assert names(tmp_path) == ["net"]
    assert (tmp_path / "net" / "manifest.json").read_text() == "old"


def test_two_that_write_one_destination_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    """Two threads, as those of a program that deploys."""
    with Staging(tmp_path / "net") as first, Staging(tmp_path / "net") as second:
        for text, one in (("first", first), ("second", second)):
            one.commit(one.prepare(make_bundle(one.path("tvm"), text)))
    assert names(tmp_path) == ["net"]
    assert (tmp_path / "net" / "manifest.json").read_text() == "second"
