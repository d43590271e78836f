"""The bundle store: whole versions, atomic activation, rollback, and death at every step."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from device_agent.errors import AgentError
from device_agent.store.bundles import BundleStore
from host.keys import host_key
from tests.signing import seal, trust

ROOT = Path(__file__).parents[4]


def make(folder, content, key=None, **fields):
    """Writes a bundle's files under their hashes; returns its version, files and finder."""
    folder.mkdir(exist_ok=True)
    made = folder / "bundle"
    made.mkdir()
    (made / "lib.so").write_bytes(content)
    (made / "params.bin").write_bytes(content * 3)
    version = seal(made, key, **fields)
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in made.iterdir()}
    for file in made.iterdir():
        file.rename(folder / hashes[file.name])
    made.rmdir()
    return version, hashes, lambda digest: str(folder / digest)


def store_in(folder):
    """A store that trusts the tests."""
    trust(folder / "trust.json")
    return BundleStore(str(folder))


@pytest.fixture
def store(tmp_path):
    return store_in(tmp_path / "store")


@pytest.fixture
def uploads(tmp_path):
    return tmp_path / "uploads"


def install(store, uploads, content, name="model", activate=True):
    version, hashes, locate = make(uploads, content)
    assert store.install(name, hashes, locate) == version
    if activate:
        store.activate(name, version)
    return version


def test_an_installed_bundle_is_whole_and_active(store, uploads):
    version = install(store, uploads, b"one")
    path = Path(store.active_path("model"))
    assert (path / "lib.so").read_bytes() == b"one"
    assert (path / "params.bin").read_bytes() == b"oneoneone"
    (entry,) = store.list()
    assert (entry["name"], entry["version"], entry["active"], entry["backend"]) == (
        "model",
        version,
        True,
        "tvm",
    )


def test_installing_does_not_activate(store, uploads):
    first = install(store, uploads, b"one")
    second = install(store, uploads, b"two", activate=False)
    assert {entry["version"]: entry["active"] for entry in store.list()} == {first: True, second: False}


def test_a_version_that_another_deployment_removed_says_what_to_do(store, uploads):
    first = install(store, uploads, b"one", activate=False)
    install(store, uploads, b"two")
    with pytest.raises(AgentError, match=r"^version .* of model is not installed; .*: deploy again$"):
        store.activate("model", first)


def test_rollback_goes_back_step_by_step(store, uploads):
    versions = [install(store, uploads, content) for content in (b"one", b"two", b"three")]
    assert store.rollback("model") == versions[1]
    assert store.rollback("model") == versions[0]
    assert Path(store.active_path("model"), "lib.so").read_bytes() == b"one"
    with pytest.raises(AgentError, match="no earlier version"):
        store.rollback("model")


def test_the_same_version_again_changes_nothing(store, uploads):
    first = install(store, uploads, b"one")
    install(store, uploads, b"two")
    assert install(store, uploads, b"one") == first
    assert len(store.list()) == 2
    assert store.list()[0]["version"] == first


def test_newer_figures_are_no_step_to_go_back_to(store, uploads):
    earlier = install(store, uploads, b"earlier")
    first = install(store, uploads, b"one")
    version, hashes, locate = make(uploads, b"one", measured={"latency_ms": 5})
    assert store.install("model", hashes, locate) == version != first
    store.activate("model", version)
    assert store.list()[0]["manifest"]["measured"] == {"latency_ms": 5}
    assert [entry["version"] for entry in store.list()] == [version, earlier]
    assert store.rollback("model") == earlier


def test_an_installed_version_that_was_damaged_is_replaced_by_the_whole_one(store, uploads):
    version = install(store, uploads, b"one")
    library = Path(store.active_path("model"), "lib.so")
    library.unlink()
    library.write_bytes(b"two")
    with pytest.raises(AgentError, match=r"lib\.so does not match the hash"):
        store.activate("model", version)
    assert install(store, uploads, b"one") == version
    assert library.read_bytes() == b"one"


def test_the_same_version_with_other_files_is_refused(store, uploads):
    version, hashes, locate = make(uploads, b"one")
    store.install("model", hashes, locate)
    _, others, _ = make(uploads, b"two")
    mixed = {**others, "manifest.json": hashes["manifest.json"], "manifest.sig": hashes["manifest.sig"]}
    with pytest.raises(AgentError, match="does not match the hash in the manifest"):
        store.install("model", mixed, locate)
    store.activate("model", version)
    assert Path(store.active_path("model"), "lib.so").read_bytes() == b"one"


def test_only_what_a_trusted_host_signed_is_installed(store, uploads, tmp_path):
    stranger = host_key(tmp_path / "stranger")
    _, hashes, locate = make(uploads, b"one", stranger)
    with pytest.raises(AgentError, match=f"signed by {stranger.name}.*not trusted here"):
        store.install("model", hashes, locate)
    del hashes["manifest.sig"]
    with pytest.raises(AgentError, match="it is not signed"):
        store.install("model", hashes, locate)
    assert store.list() == []


def test_nothing_goes_back_to_what_was_revoked(store, uploads, tmp_path):
    other = host_key(tmp_path / "other")
    trust(store.trust.path, other)
    version, hashes, locate = make(uploads, b"one", other)
    store.install("model", hashes, locate)
    store.activate("model", version)
    second = install(store, uploads, b"two")
    store.trust.revoke(other.public[:12])
    with pytest.raises(AgentError, match=f"cannot go back to version {version[:12]}.*was revoked on"):
        store.rollback("model")
    assert Path(store.active_path("model")).name == second
    with pytest.raises(AgentError, match="was revoked on"):
        store.activate("model", version)
    # One version of a host that is trusted can be revoked, too.
    third = install(store, uploads, b"three")
    store.trust.revoke(second)
    with pytest.raises(AgentError, match=f"version {second[:16]} was revoked"):
        store.rollback("model")
    assert Path(store.active_path("model")).name == third


def no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_going_back_on_a_full_disk_happens_or_does_not(store, uploads, monkeypatch):
    first, second = (install(store, uploads, content) for content in (b"one", b"two"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "symlink", no_space)
        with pytest.raises(AgentError, match="no space left on the device for going back") as full:
            store.rollback("model")
    assert full.value.kind == "device_full" and Path(store.active_path("model")).name == second
    with monkeypatch.context() as patch:
        patch.setattr(BundleStore, "_write_history", no_space)
        # It has happened when the link was swapped, and is reported so.
        assert store.rollback("model") == first
    assert Path(store.active_path("model")).name == first
    with pytest.raises(AgentError, match="no earlier version"):
        store.rollback("model")


def test_activating_on_a_full_disk_leaves_what_was_active(store, uploads, monkeypatch):
    first, second = (install(store, uploads, content) for content in (b"one", b"two"))
    third = install(store, uploads, b"three", activate=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "symlink", no_space)
        with pytest.raises(AgentError, match="no space left on the device for activating"):
            store.activate("model", third)
    assert Path(store.active_path("model")).name == second
    assert store.rollback("model") == first


def test_a_history_that_is_none_is_that_of_the_active_version(store, uploads, tmp_path):
    version = install(store, uploads, b"one")
    for text in ("null", "[1, null]", '["../x"]', "{"):
        (tmp_path / "store" / "bundles" / "model" / "history.json").write_text(text)
        again = BundleStore(str(tmp_path / "store"))
        assert Path(again.active_path("model")).name == version


def test_a_file_beside_the_bundles_is_none_and_ends_nothing(store, uploads, tmp_path):
    """Such as what a program of the user left there."""
    version = install(store, uploads, b"one")
    (tmp_path / "store" / "bundles" / "core").write_text("x")
    again = BundleStore(str(tmp_path / "store"))
    assert [(one["name"], one["version"], one["active"]) for one in again.list()] == [
        ("model", version, True)
    ]


def test_old_versions_are_dropped(store, uploads):
    versions = [install(store, uploads, bytes([65 + index])) for index in range(5)]
    assert {entry["version"] for entry in store.list()} == set(versions[-3:])
    assert store.rollback("model") == versions[3]


def test_removed_bundles_are_gone(store, uploads):
    install(store, uploads, b"one")
    store.remove("model")
    assert store.list() == []
    with pytest.raises(AgentError, match="no bundle model is installed"):
        store.remove("model")


def test_a_damaged_file_installs_nothing(store, uploads):
    _, hashes, locate = make(uploads, b"one")
    (uploads / hashes["lib.so"]).write_bytes(b"damaged")
    with pytest.raises(AgentError, match=r"lib\.so is damaged"):
        store.install("model", hashes, locate)
    assert store.list() == []


def test_a_missing_file_installs_nothing(store, uploads):
    _, hashes, locate = make(uploads, b"one")
    (uploads / hashes["params.bin"]).unlink()
    with pytest.raises(AgentError, match=r"params\.bin was not sent"):
        store.install("model", hashes, locate)
    del hashes["params.bin"]
    with pytest.raises(AgentError, match=r"lacks params\.bin"):
        store.install("model", hashes, locate)
    assert store.list() == []


def test_no_manifest_installs_nothing(store, uploads):
    _, hashes, locate = make(uploads, b"one")
    del hashes["manifest.json"]
    with pytest.raises(AgentError, match=r"no manifest\.json"):
        store.install("model", hashes, locate)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 101, "a b", "a\n"])
def test_names_cannot_leave_the_store(store, uploads, name):
    _, hashes, locate = make(uploads, b"one")
    with pytest.raises(AgentError, match="no name for a bundle"):
        store.install(name, hashes, locate)


@pytest.mark.parametrize("relative", ["../x", "a/b", "..", "/etc/x", "x\n", ".x"])
def test_files_cannot_leave_the_bundle(store, uploads, relative):
    _, hashes, locate = make(uploads, b"one")
    hashes[relative] = hashes["lib.so"]
    with pytest.raises(AgentError, match="holds no file named"):
        store.install("model", hashes, locate)


def test_a_version_that_lost_its_files_gives_way_at_start(store, uploads, tmp_path):
    first = install(store, uploads, b"one")
    install(store, uploads, b"two")
    Path(store.active_path("model"), "manifest.json").unlink()
    again = BundleStore(str(tmp_path / "store"))
    assert Path(again.active_path("model")).name == first


# -- death at every step

KILLED = """
import json, os, signal, sys
from device_agent.store.bundles import BundleStore
root, uploads, at, action = sys.argv[1:5]
hashes, version = json.loads(sys.argv[5]), sys.argv[6]
steps = 0
def checkpoint(name):
    global steps
    steps += 1
    if steps == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
store = BundleStore(root, checkpoint)
if action == "update":
    store.install("model", hashes, lambda digest: os.path.join(uploads, digest))
    store.activate("model", version)
else:
    store.rollback("model")
"""


def killed_at(step, root, uploads, action, hashes, version):
    """Whether the process was killed at this step (it may have fewer)."""
    arguments = [str(root), str(uploads), str(step), action, json.dumps(hashes), version]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize("action", ["update", "rollback"])
def test_killed_at_any_step_the_old_or_the_new_version_serves(tmp_path, uploads, action):
    outcomes = set()
    for step in range(1, 40):
        root = tmp_path / f"store{step}"
        store = store_in(root)
        contents = [b"one", b"two", b"three", b"four"] if action == "update" else [b"one", b"two"]
        old = [install(store, uploads, content) for content in contents]
        if action == "update":
            new, hashes, _ = make(uploads, b"new")
            possible = {old[-1]: b"four", new: b"new"}
        else:
            new, hashes = old[0], {}
            possible = {old[1]: b"two", old[0]: b"one"}
        was_killed = killed_at(step, root, uploads, action, hashes, new)
        after = BundleStore(str(root))
        path = Path(after.active_path("model"))
        outcomes.add(path.name == new)
        assert (path / "lib.so").read_bytes() == possible[path.name]
        assert (path / "manifest.json").is_file()
        assert list((root / "staging").iterdir()) == []
        assert sum(entry["active"] for entry in after.list()) == 1
        # Whatever happened, the store goes on working.
        latest = install(after, uploads, b"later")
        assert after.rollback("model") == path.name != latest
        if not was_killed:
            break
    else:
        pytest.fail("the kill points never ended")
    assert step > 3 and outcomes == {True, False}
