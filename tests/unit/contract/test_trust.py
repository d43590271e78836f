"""The file of trusted keys: what it grants, what it refuses, and what becomes of a damaged one."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from device_agent.contract.manifest import ContractError
from device_agent.contract.signing import BundleSignature
from device_agent.contract.trust import TrustedKeys, TrustStore

KEYS = [f"{index:x}" * 64 for index in range(1, 6)]
VERSION = "f" * 64


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(str(tmp_path / "device" / "trust.json"), clock=lambda: "2026-01-31")


def signed(key: str) -> BundleSignature:
    return BundleSignature("somebody", key, "0" * 128)


def test_nobody_is_trusted_at_first(store: TrustStore) -> None:
    assert store.read() == TrustedKeys()
    with pytest.raises(ContractError, match=f"sdk keys trust {KEYS[0]} --name NAME"):
        store.read().check(VERSION, signed(KEYS[0]))
    with pytest.raises(ContractError, match="it is not signed"):
        store.read().check(VERSION, None)


def test_an_enrolled_key_is_trusted_until_it_is_revoked(store: TrustStore) -> None:
    assert store.enrol(KEYS[0], "alice@laptop")
    assert store.enrol(KEYS[0], "alice@laptop")
    [key] = store.read().keys
    assert key == (KEYS[0], "alice@laptop", "2026-01-31")
    store.read().check(VERSION, signed(KEYS[0]))
    assert store.revoke("alice@laptop").identity == KEYS[0]
    assert store.read().keys == ()
    with pytest.raises(ContractError, match=r"signed by alice@laptop .*revoked on 2026-01-31"):
        store.read().check(VERSION, signed(KEYS[0]))
    # Who comes back by himself stays out; who is trusted by name is in again.
    assert not store.enrol(KEYS[0], "alice@laptop")
    store.trust(KEYS[0], "alice")
    store.read().check(VERSION, signed(KEYS[0]))
    assert store.read().revoked == ()


def test_a_version_can_be_revoked(store: TrustStore) -> None:
    store.enrol(KEYS[0], "alice")
    store.revoke(VERSION)
    with pytest.raises(ContractError, match="version ffffffffffffffff was revoked"):
        store.read().check(VERSION, signed(KEYS[0]))
    store.read().check("e" * 64, signed(KEYS[0]))


def test_what_is_to_be_revoked_must_be_meant(store: TrustStore) -> None:
    for key, name in zip(("a" * 60 + "0001", "a" * 60 + "0002", KEYS[2]), ("x", "x", "y"), strict=True):
        store.trust(key, name)
    for wanted, message in {
        "x": "names several keys",
        "aaaaaaaa": "names several keys",
        "3333333": "no trusted key is called 3333333",
        "nobody\x1b[31m": r"no trusted key is called nobody\\x1b\[31m",
    }.items():
        with pytest.raises(ContractError, match=message):
            store.revoke(wanted)
    assert store.revoke("33333333").name == "y"


@pytest.mark.parametrize(
    ("key", "name"), [("1" * 63, "x"), ("G" * 64, "x"), (KEYS[0], ""), (KEYS[0], "a\nb")]
)
def test_what_is_no_key_or_no_name_is_refused(store: TrustStore, key: str, name: str) -> None:
    for change in (store.enrol, store.trust):
        with pytest.raises(ContractError):
            change(key, name)
    assert not Path(store.path).exists()


def test_the_file_is_its_users_alone(store: TrustStore) -> None:
    store.enrol(KEYS[0], "alice")
    assert stat.S_IMODE(Path(store.path).stat().st_mode) == 0o600
    for mode in (0o620, 0o602, 0o666):
        Path(store.path).chmod(mode)
        with pytest.raises(ContractError, match="can be written to by others"):
            store.read()


def damaged(change: Callable[[dict[str, list[dict[str, str]]]], object]) -> str:
    entry = {"key": KEYS[0], "name": "x", "since": "2026-01-01"}
    fields: dict[str, list[dict[str, str]]] = {"keys": [entry], "revoked": []}
    change(fields)
    return json.dumps({"schema": "edgetlm.trust/1", **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": "edgetlm.trust/2", "keys": [], "revoked": []}',
        '{"schema": "edgetlm.trust/1", "keys": []}',
        damaged(lambda f: f["keys"][0].update(key="1" * 63)),
        damaged(lambda f: f["keys"][0].update(name="\x1b[31m")),
        damaged(lambda f: f["keys"][0].pop("since")),
        damaged(lambda f: f["keys"].extend(f["keys"] * 2000)),
        damaged(lambda f: f.update(revoked=5)),  # type: ignore[call-overload]
        " " * (1 << 21),
    ],
)
def test_a_damaged_file_grants_nothing(store: TrustStore, text: str) -> None:
    store.enrol(KEYS[0], "alice")
    Path(store.path).write_text(text)
    with pytest.raises(ContractError, match="is damaged"):
        store.read()
    with pytest.raises(ContractError, match="is damaged"):
        store.enrol(KEYS[1], "bob")
    assert Path(store.path).read_text() == text


def test_several_at_once_lose_nothing(store: TrustStore) -> None:
    keys = [f"{index:064x}" for index in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda key: TrustStore(store.path).enrol(key, f"host {key[-4:]}"), keys))
    assert {one.key for one in store.read().keys} == set(keys)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ContractError, match="cannot be changed"):
        TrustStore(str(tmp_path / "file" / "trust.json")).enrol(KEYS[0], "alice")
