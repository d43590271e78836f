"""A bundle's directory against its manifest, and what is remembered of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from device_agent.contract import verify
from device_agent.contract.manifest import ContractError
from device_agent.contract.signing import parse_signature, signed_message
from device_agent.contract.verify import VerifiedFiles, verify_directory
from tests.signing import seal, write_signature


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "lib.so").write_bytes(b"library")
    (folder / "golden.npz").write_bytes(b"golden")
    seal(folder)
    return folder


def fifo(folder: Path) -> None:
    (folder / "lib.so").unlink()
    os.mkfifo(folder / "lib.so")


def link(folder: Path) -> None:
    (folder / "lib.so").rename(folder.parent / "lib.so")
    (folder / "lib.so").symlink_to(folder.parent / "lib.so")


def linked_manifest(folder: Path) -> None:
    (folder / "manifest.json").rename(folder.parent / "manifest.json")
    (folder / "manifest.json").symlink_to(folder.parent / "manifest.json")


def swollen(folder: Path) -> None:
    with (folder / "manifest.json").open("ab") as file:
        file.truncate(1 << 30)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "lib.so").write_bytes(b"LIBRARY"), "lib.so does not match the hash"),
        (lambda f: (f / "lib.so").write_bytes(b"librar"), r"\(6 bytes, not 7\)"),
        (lambda f: (f / "lib.so").unlink(), "it lacks lib.so"),
        (lambda f: (f / "more").write_bytes(b""), "it holds more, which"),
        (lambda f: (f / "sub").mkdir(), "it holds sub, which"),
        (lambda f: (f / "a\x1b[31m\n").write_bytes(b""), r"it holds a\\x1b\[31m, which"),
        (lambda f: (f / "manifest.sig").write_bytes(b"{}"), "is not of the schema"),
        (lambda f: (f / "manifest.sig").write_bytes(b"x" * 5000), "more than 4096 bytes"),
        (fifo, "lib.so is not a regular file"),
        (link, "lib.so is not a regular file"),
        (linked_manifest, "manifest.json cannot be read: Too many levels"),
        (swollen, "more than 16777216 bytes"),
    ],
)
def test_what_is_not_as_it_was_is_found(made: Path, damage: Callable[[Path], object], message: str) -> None:
    before = verify_directory(str(made))
    assert before.signature is not None and before.manifest.model == "lib.so"
    damage(made)
    with pytest.raises(ContractError, match=message):
        verify_directory(str(made))


def test_a_signature_is_of_one_manifest_and_one_signer(made: Path) -> None:
    whole = parse_signature((made / "manifest.sig").read_bytes())
    for changed in (
        whole._replace(signer="root@localhost"),
        whole._replace(key="2" * 64),
        whole._replace(signature=whole.signature[:-1] + ("0" if whole.signature[-1] != "0" else "1")),
    ):
        write_signature(made, changed)
        with pytest.raises(ContractError, match="its signature is not that of its manifest"):
            verify_directory(str(made))
    assert signed_message(b"a", "x") != signed_message(b"b", "x") != signed_message(b"b", "y")


def test_an_unsigned_bundle_is_whole_and_unsigned(made: Path) -> None:
    (made / "manifest.sig").unlink()
    assert verify_directory(str(made)).signature is None


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old enough to be remembered."""
    monkeypatch.setattr(verify, "_SETTLED_S", -3600.0)


class Counted:
    """How often a file was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        real = verify.check_file
        monkeypatch.setattr(
            verify, "check_file", lambda path, name, entry: (self.names.append(name), real(path, name, entry))
        )


def test_files_are_read_once_a_boot_and_after_a_change(
    made: Path, tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    memory = VerifiedFiles(str(tmp_path / "verified"))
    for _ in range(3):
        verify_directory(str(made), memory)
    assert sorted(counted.names) == ["golden.npz", "lib.so"]
    assert (tmp_path / "verified").stat().st_mode & 0o077 == 0
    # Another boot.
    verify_directory(str(made), VerifiedFiles(str(tmp_path / "verified"), boot=lambda: "another"))
    assert len(counted.names) == 4
    # The same content in other files, and the times of the old ones.
    status = (made / "lib.so").stat()
    (made / "lib.so").unlink()
    (made / "lib.so").write_bytes(b"LIBRARY")
    os.utime(made / "lib.so", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ContractError, match="does not match the hash"):
        verify_directory(str(made), memory)


def test_young_files_are_not_remembered(made: Path, tmp_path: Path) -> None:
    verify_directory(str(made), VerifiedFiles(str(tmp_path / "verified")))
    assert not (tmp_path / "verified").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"schema": "edgetlm.verified/1"}', "[" * 100_000])
def test_a_damaged_memory_remembers_nothing(
    made: Path, tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    memory = VerifiedFiles(str(tmp_path / "verified"))
    version = verify_directory(str(made), memory).version
    (tmp_path / "verified" / version).write_text(text)
    counted = Counted(monkeypatch)
    verify_directory(str(made), memory)
    assert len(counted.names) == 2


def test_without_a_boots_name_nothing_is_remembered(
    made: Path, tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    for _ in range(2):
        verify_directory(str(made), VerifiedFiles(str(tmp_path / "verified"), boot=lambda: ""))
    assert len(counted.names) == 4


def test_memory_is_bounded(made: Path, tmp_path: Path, settled: None) -> None:
    memory = VerifiedFiles(str(tmp_path / "verified"))
    for index in range(70):
        memory.remember(f"{index:064x}", {})
        assert (tmp_path / "verified" / f"{index:064x}").is_file()
    assert len(list((tmp_path / "verified").iterdir())) <= 64


def test_a_manifest_that_is_changed_meanwhile_is_that_of_its_bytes(made: Path) -> None:
    found = verify_directory(str(made))
    fields = json.loads((made / "manifest.json").read_text())
    assert found.manifest.fields == fields
