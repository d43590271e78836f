"""What the native executor does with bundles that were changed, or are somebody else's."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.contract.manifest import MANIFEST, SIGNATURE, ContractError
from device_agent.contract.trust import TrustStore
from device_agent.contract.verify import VerifiedFiles, verify_directory
from host.keys import HostKey, host_key
from tests.integration.native.process import Executor
from tests.signing import reseal, trust

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)

Damage = Callable[[Path], object]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file of trusted keys, with the tests' own in it."""
    path = tmp_path / "device" / "trust.json"
    trust(path)
    return path


@pytest.fixture
def folder(bundle: Path, tmp_path: Path) -> Path:
    """A copy of the bundle, to be changed."""
    return shutil.copytree(bundle, tmp_path / "bundle")


@pytest.fixture
def executor(executable: Path, tmp_path: Path, keys: Path):
    with Executor([str(executable)], tmp_path / "session", trust_file=str(keys)) as running:
        yield running


def refusal(executor: Executor, folder: Path, **fields: Any) -> str:
    """Why a bundle is not loaded; the session has none then."""
    reply, _ = executor.ask("load", path=str(folder), **fields)
    assert not reply["ok"], reply
    assert reply["error"]["kind"] == "bundle", reply
    assert "no model is loaded" in executor.ask("run")[0]["error"]["message"]
    return str(reply["error"]["message"])


def flip(path: Path) -> None:
    """Turn one bit around, in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def with_parameter(folder: Path, **changes: Any) -> None:
    """Change the entry of the only parameter, and sign."""
    [entry] = json.loads((folder / MANIFEST).read_text())["parameters"]
    reseal(folder, parameters=[{**entry, **changes}])


def with_model(folder: Path, name: str) -> None:
    """Have the manifest name another file as the model, and sign."""
    reseal(folder, model=name)


def with_link(folder: Path) -> None:
    """Put a symbolic link to the same content in the place of a file."""
    moved = folder.with_name("elsewhere")
    shutil.move(folder / "params.bin", moved)
    (folder / "params.bin").symlink_to(moved)


def with_file_entry(folder: Path, name: str) -> None:
    """Have the manifest name a file outside of the bundle, and sign."""
    files = json.loads((folder / MANIFEST).read_text())["files"]
    reseal(folder, files={**files, name: files["lib.so"]})


AGAIN = "copy or make the bundle again"
DAMAGES: dict[str, tuple[Damage, str]] = {
    "a bit of the library": (
        lambda b: flip(b / "lib.so"),
        f"lib.so does not match the hash in the manifest: {AGAIN}",
    ),
    "a bit of the weights": (
        lambda b: flip(b / "params.bin"),
        f"params.bin does not match the hash in the manifest: {AGAIN}",
    ),
    "weights cut short": (
        lambda b: (b / "params.bin").write_bytes(b"x" * 64),
        f"params.bin does not match the hash in the manifest (64 bytes, not 8192): {AGAIN}",
    ),
    "weights away": (lambda b: (b / "params.bin").unlink(), f"it lacks params.bin: {AGAIN}"),
    "weights elsewhere": (with_link, f"params.bin is not a regular file: {AGAIN}"),
    "a file more": (
        lambda b: (b / "x\x1b.so").write_bytes(b""),
        "it holds x\\x1b.so, which its manifest does not name: remove it",
    ),
    "a negative offset": (
        lambda b: with_parameter(b, offset=-64),
        "the offset of parameter 0 is -64, not a whole number from 0 to 8192",
    ),
    "an offset beyond": (lambda b: with_parameter(b, offset=64), "parameter 0 does not fit params.bin"),
    "a crooked offset": (lambda b: with_parameter(b, offset=1), "parameter 0 is not aligned"),
    "another size": (
        lambda b: with_parameter(b, nbytes=4),
        "parameter 0 has not the size of its shape",
    ),
    "an absolute model": (lambda b: with_model(b, "/lib/libc.so.6"), "its model is none of its files"),
    "a model above": (lambda b: with_model(b, "../bundle/lib.so"), "its model is none of its files"),
    "a file above": (
        lambda b: with_file_entry(b, "../lib.so"),
        "it names the file '../lib.so' outside of the bundle",
    ),
    "a million threads": (
        lambda b: reseal(b, threads=1_000_000),
        "threads is 1000000, not a whole number from 1 to 1024",
    ),
    "a field of the manifest": (
        lambda b: (b / MANIFEST).write_text((b / MANIFEST).read_text().replace('"small"', '"large"')),
        "its signature is not that of its manifest: somebody changed one of them",
    ),
    "another signer's name": (
        lambda b: (b / SIGNATURE).write_text(
            json.dumps({**json.loads((b / SIGNATURE).read_text()), "signer": "root@localhost"})
        ),
        "its signature is not that of its manifest: somebody changed one of them",
    ),
    "no signature": (
        lambda b: (b / SIGNATURE).unlink(),
        "it is not signed; if you know where it comes from, load it with trust='unsigned'"
        " (sdk: --trust unsigned)",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_bundle_that_was_changed_is_refused_with_the_reason(
    what: str, executor: Executor, folder: Path, keys: Path
) -> None:
    damage, reason = DAMAGES[what]
    damage(folder)
    assert refusal(executor, folder) == f"bundle {folder}: {reason}"
    # Python says the same.
    with pytest.raises(ContractError) as raised:
        checked = verify_directory(str(folder))
        TrustStore(str(keys)).read().check(checked.version, checked.signature)
    assert str(raised.value) == reason


def test_what_is_no_bundle_is_named(executor: Executor, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refusal(executor, empty) == f"{empty} is not a bundle: it has no manifest.json"


def test_a_bundle_of_somebody_else_needs_to_be_asked_for(
    executor: Executor, folder: Path, golden: dict[str, np.ndarray], tmp_path: Path
) -> None:
    stranger = host_key(tmp_path / "stranger")
    reseal(folder, stranger)
    reason = refusal(executor, folder)
    assert f"(key {stranger.public[:16]}), who is not trusted here" in reason
    assert f"sdk keys trust {stranger.public} --name NAME" in reason
    assert "trust is one of signed, unsigned, not yes" in refusal(executor, folder, trust="yes")
    reply, _ = executor.ask("load", path=str(folder), trust="unsigned")
    assert reply["ok"]
    assert reply["warning"] == (
        f"the bundle {folder}, signed by {stranger.name}, is loaded without trust in its signer"
    )
    _, outputs = executor.ask("run", [golden["x"], golden["unused"]])
    np.testing.assert_allclose(outputs[0], golden["z"], rtol=1e-4, atol=1e-5)


def test_a_bundle_of_nobody_is_loaded_with_a_warning(executor: Executor, folder: Path) -> None:
    (folder / SIGNATURE).unlink()
    reply, _ = executor.ask("load", path=str(folder), trust="unsigned")
    assert reply["ok"]
    assert reply["warning"] == f"the bundle {folder}, signed by nobody, is loaded without trust in its signer"
    # A trusted signature needs none; and nothing else is let through with it.
    flip(folder / "params.bin")
    assert "does not match the hash" in refusal(executor, folder, trust="unsigned")


def test_a_trusted_bundle_is_loaded_without_a_warning(executor: Executor, folder: Path) -> None:
    for level in ("signed", "unsigned"):
        reply, _ = executor.ask("load", path=str(folder), trust=level)
        assert reply["ok"] and "warning" not in reply


def test_what_was_revoked_is_refused_whatever_is_asked_for(
    executor: Executor, folder: Path, keys: Path
) -> None:
    version = verify_directory(str(folder)).version
    store = TrustStore(str(keys), clock=lambda: "2026-01-02")
    store.revoke(version)
    for level in ("signed", "unsigned"):
        assert f"version {version[:16]} was revoked on 2026-01-02" in refusal(executor, folder, trust=level)
    keys.unlink()
    own: HostKey = host_key()
    store.trust(own.public, "laptop")
    store.revoke("laptop")
    for level in ("signed", "unsigned"):
        reason = refusal(executor, folder, trust=level)
        assert (
            f"it is signed by laptop (key {own.public[:16]}), whose key was revoked on 2026-01-02" in reason
        )


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda file: file.chmod(0o620), "can be written to by others: chown it to its user and chmod 600"),
        (lambda file: file.chmod(0o602), "can be written to by others"),
        (lambda file: file.write_text("{"), "is damaged (trust.json is not valid JSON"),
        (lambda file: file.write_text("[]"), "is damaged (not of the schema edgetlm.trust/1)"),
        (
            lambda file: file.write_text(
                '{"schema": "edgetlm.trust/1", "keys": [{"key": "x"}], "revoked": []}'
            ),
            "is damaged (an entry is not of a key)",
        ),
        (
            lambda file: file.write_text('{"schema": "edgetlm.trust/1", "keys": []}'),
            "remove it and add the hosts again",
        ),
        (lambda file: file.unlink(), "who is not trusted here"),
        (lambda file: (file.unlink(), file.mkdir()), "cannot be read: Is a directory"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_trusts_nobody(
    executor: Executor, folder: Path, keys: Path, spoil: Damage, reason: str
) -> None:
    spoil(keys)
    assert reason in refusal(executor, folder)


def settle(folder: Path) -> None:
    """Wait until the files are old enough to be remembered."""
    newest = max(file.stat().st_ctime for file in folder.iterdir())
    time.sleep(max(0.0, newest + 2.2 - time.time()))


def test_what_was_verified_is_remembered_for_both_executors(
    executor: Executor, folder: Path, keys: Path
) -> None:
    checked = verify_directory(str(folder))
    memory = VerifiedFiles(str(keys.parent / "verified"))
    stamps = {}
    for name in checked.manifest.files:
        found = (folder / name).stat()
        stamps[name] = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    assert executor.ask("load", path=str(folder))[0]["ok"]
    if not memory.knows(checked.version, stamps):  # too young at the first time
        settle(folder)
        assert executor.ask("load", path=str(folder))[0]["ok"]
    assert memory.knows(checked.version, stamps)
    remembered = keys.parent / "verified" / checked.version
    assert (remembered.stat().st_mode & 0o777, remembered.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_whether_weights_are_mapped_is_true_or_false(executor: Executor, folder: Path) -> None:
    for mapped in (True, False, None):
        assert executor.ask("load", path=str(folder), mapped=mapped)[0]["ok"]
    for wrong in (5, "true", [], {}):
        assert executor.ask("load", path=str(folder), mapped=wrong)[0]["error"]["message"].startswith(
            "load: mapped is"
        )


def test_young_files_are_not_remembered(executor: Executor, folder: Path, keys: Path) -> None:
    os.utime(folder / "lib.so", ns=(1, 1))  # its status changes now, whatever it says of its content
    assert executor.ask("load", path=str(folder))[0]["ok"]
    young = time.time() - (folder / "lib.so").stat().st_ctime < 2.0
    assert not young or not (keys.parent / "verified").exists()


def test_a_remembered_bundle_is_not_read_again_until_it_changes(
    executor: Executor, folder: Path, keys: Path
) -> None:
    version = verify_directory(str(folder)).version
    # Weights that do not match, remembered as if they did: nothing but their stamps is looked at.
    flip(folder / "params.bin")
    stamps = {}
    for name in ("lib.so", "params.bin", "golden.npz"):
        found = (folder / name).stat()
        stamps[name] = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    memory = VerifiedFiles(str(keys.parent / "verified"))
    memory.remember(version, stamps)
    assert executor.ask("load", path=str(folder))[0]["ok"]
    # Any change, and be it of the times alone, has them read.
    before = (folder / "params.bin").stat()
    os.utime(folder / "params.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "params.bin does not match the hash" in refusal(executor, folder)
    # So has another boot, and a memory that is none.
    after = (folder / "params.bin").stat()
    stamps["params.bin"][-1] = after.st_ctime_ns
    VerifiedFiles(str(keys.parent / "verified"), boot=lambda: "another").remember(version, stamps)
    assert "params.bin does not match the hash" in refusal(executor, folder)
    memory.remember(version, stamps)
    assert executor.ask("load", path=str(folder))[0]["ok"]
    (keys.parent / "verified" / version).write_text("{")
    assert "params.bin does not match the hash" in refusal(executor, folder)
