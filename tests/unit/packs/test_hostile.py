"""Packs that somebody made to do harm: each is refused in one line, and nothing of it is there afterwards."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent.contract.manifest import MANIFEST, SIGNATURE
from device_agent.contract.trust import Revocation
from host.calibration.foreign import calibration_path_of_machine
from host.errors import EdgeError
from host.keys import host_key
from host.packs.manifest import CALIBRATION, RECORDS
from host.records import RecordStore
from host.records.record import line_of
from sdk.management.packs import pull
from tests.signing import entry
from tests.unit.calibration.samples import calibration
from tests.unit.packs.samples import LINES, contents, good, made, members, trusting, zipped
from tests.unit.records.samples import record

Make = Callable[[Path], Path]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def _truncated(path: Path) -> Path:
    data = good(path).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def _wrong_hash(path: Path) -> Path:
    found = members(good(path))
    return zipped(path, {**found, RECORDS: found[RECORDS].replace(b"0.003", b"0.001")})


def _changed_manifest(path: Path) -> Path:
    found = members(good(path))
    return zipped(path, {**found, MANIFEST: found[MANIFEST].replace(b'"records": 3', b'"records": 4')})


def _unsigned(path: Path) -> Path:
    found = members(good(path))
    del found[SIGNATURE]
    return zipped(path, found)


def _hidden_signer(path: Path) -> Path:
    found = members(good(path))
    signature = {**json.loads(found[SIGNATURE]), "signer": "anna\x1b[2J"}
    return zipped(path, {**found, SIGNATURE: json.dumps(signature).encode()})


def _said_smaller(path: Path) -> Path:
    """A file that is longer than its manifest says, which is signed."""
    files = {name: entry(content) for name, content in contents().items()}
    files[RECORDS] = {**files[RECORDS], "size": files[RECORDS]["size"] - 1}
    return made(path, contents(), files=files)


def _extra(name: str) -> Make:
    return lambda path: zipped(path, {**members(good(path)), name: b"x"})


def _linked(path: Path) -> Path:
    return zipped(path, {**members(good(path)), RECORDS: b"/etc/passwd"}, link=RECORDS)


def _signed_link(path: Path) -> Path:
    """The manifest names the link's own content."""
    found = members(made(path, {**contents(), CALIBRATION: b"/etc/passwd"}))
    return zipped(path, found, link=CALIBRATION)


def _twice(path: Path) -> Path:
    good(path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(RECORDS, b"x")
    return path


def _bomb(path: Path) -> Path:
    return made(path, {RECORDS: bytes(300 << 20)})


def _of_lines(*lines: str, count: int) -> Make:
    text = "".join(f"{line}\n" for line in lines).encode()
    return lambda path: made(path, {RECORDS: text}, records=count)


def _calibrated(**changes: object) -> Make:
    text = json.dumps({**calibration().to_json(), **changes}).encode()
    return lambda path: made(path, {**contents(), CALIBRATION: text})


def _of_another_board() -> str:
    return line_of(replace(record(1.0, task="new"), profile={**record(1.0).profile, "board": "pi5"}))


GOOD = [line_of(one) for one in LINES]
HOSTILE: dict[str, tuple[Make, str]] = {
    "truncated": (_truncated, "is no archive, or a part of one: copy or make the pack again"),
    "empty": (lambda path: (path.write_bytes(b"") and path) or path, "is no archive"),
    "hash": (_wrong_hash, "records.jsonl does not match the hash in the manifest"),
    "manifest": (_changed_manifest, "its signature is not that of its manifest"),
    "unsigned": (_unsigned, "it is not signed: ask for one that sdk records publish wrote"),
    "extra": (_extra("more.txt"), "it holds more.txt, which its manifest does not name"),
    "outside": (_extra("../../outside"), "it holds ../../outside, which its manifest does not name"),
    "absolute": (_extra("/tmp/outside"), "it holds /tmp/outside, which its manifest does not name"),
    "many": (
        lambda path: zipped(path, {**members(good(path)), **{str(n): b"" for n in range(100)}}),
        "the archive holds 104 files",
    ),
    "link": (_linked, "records.jsonl is a symbolic link"),
    "signed link": (_signed_link, "calibration.json is a symbolic link"),
    "twice": (_twice, "some of them twice"),
    "bomb": (_bomb, "unpack to"),
    "no manifest": (lambda path: zipped(path, contents()), "the archive is damaged"),
    "no bundle": (lambda path: made(path, contents(), schema="edgetlm.bundle/1"), "it is no pack of records"),
    "other files": (
        lambda path: made(path, {**contents(), "lib.so": b"x"}),
        "its manifest names other files than records.jsonl, calibration.json and models",
    ),
    "named outside": (
        lambda path: made(path, {**contents(), "../lib.so": b"x"}),
        "it names the file",
    ),
    "huge count": (
        lambda path: made(path, contents(), records=10**12),
        "records is 1000000000000; a whole number from 1 to 10000000 is expected",
    ),
    "no number": (lambda path: made(path, contents(), records=True), "records is True"),
    "huge file": (
        lambda path: made(path, contents(), files={RECORDS: {"size": 1 << 60, "sha256": "0" * 64}}),
        "the size of records.jsonl",
    ),
    "no date": (lambda path: made(path, contents(), made_at="soon"), "it names no board, or no date"),
    "future pack": (
        lambda path: made(path, contents(), made_at="9999-01-01T00:00:00+00:00"),
        "no date in the past",
    ),
    "no time zone": (
        lambda path: made(path, contents(), made_at="2026-11-21T10:00:00"),
        "no date in the past",
    ),
    "hidden signer": (_hidden_signer, "manifest.sig names no signer with a key"),
    "hidden version": (
        lambda path: made(path, contents(), versions={"edgetlm\x1b[2J": "0"}),
        "its versions are no names and numbers",
    ),
    "smaller": (_said_smaller, "records.jsonl does not match the hash in the manifest"),
    "hidden board": (lambda path: made(path, contents(), board="pi5\x1b[2J"), "it names no board"),
    "fewer": (_of_lines(*GOOD, count=9), "it does not hold the 9 records that its manifest names"),
    "more": (_of_lines(*GOOD, count=2), "it does not hold the 2 records that its manifest names"),
    "damaged line": (_of_lines(*GOOD, "{}", count=4), "records.jsonl, line 4 is no record"),
    "key twice": (_of_lines(*GOOD[:2], '{"a": 1, "a": 2}', count=3), "line 3 is no record"),
    "another board": (_of_lines(*GOOD, _of_another_board(), count=4), "a record is of the board pi5"),
    "no calibration": (
        lambda path: made(path, {**contents(), CALIBRATION: b"[" * 100_000}),
        "the calibration is not valid JSON",
    ),
    "not finite": (_calibrated(peak_flops=float("nan")), "the calibration is not valid JSON"),
    "no clock": (_calibrated(frequency_hz=0), "frequency_hz is 0"),
    "no machine": (_calibrated(machine="../../../x"), "machine is '../../../x'; a SHA-256 is expected"),
    "levels": (_calibrated(levels=[{}] * 1000), "levels is a list of 1000"),
    "naive date": (_calibrated(date="2026-11-21T10:00:00"), "a date with its time zone"),
    "future": (_calibrated(date="9999-01-01T00:00:00+00:00"), "a date in the past is expected"),
    "other calibration": (_calibrated(board="pi5"), "its calibration is of the board pi5"),
}


@pytest.mark.parametrize(("make", "reason"), HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_pack_leaves_nothing(make: Make, reason: str, tmp_path: Path) -> None:
    before = record(9.0, task="before")
    with RecordStore(tmp_path / "r.sqlite") as store:
        store.append([before])
        path = make(tmp_path / "p.pack")
        there = set(tmp_path.iterdir())
        with pytest.raises(EdgeError) as refused:
            pull(path, store, trusting(host_key()))
        text = str(refused.value)
        assert reason in text and str(path) in text and "nothing was imported" in text
        assert "\n" not in text and text.isprintable() and len(text) < 600
        assert [one.record_key for one in store] == [before.record_key]
    assert not calibration_path_of_machine(calibration().machine).exists()
    assert set(tmp_path.iterdir()) - there <= {tmp_path / "data"}
    assert not any(file.is_file() for file in (tmp_path / "data").rglob("*"))


def test_a_foreign_key_is_refused_with_what_enrols_it(tmp_path: Path) -> None:
    key = host_key(tmp_path / "foreign")
    path = made(tmp_path / "p.pack", contents(), key)
    with RecordStore(tmp_path / "r.sqlite") as store:
        with pytest.raises(EdgeError) as refused:
            pull(path, store, trusting(host_key()))
        assert f"if you know them: sdk keys trust {key.public} --name NAME; nothing" in str(refused.value)
        assert "\n" not in str(refused.value) and not list(store)
        assert pull(path, store, trusting(key)).new == len(LINES)


def test_what_was_revoked_is_refused_although_it_is_trusted(tmp_path: Path) -> None:
    key = host_key()
    revoked = trusting(key)._replace(revoked=(Revocation(key.public, "bob", "2026-11-20"),))
    with RecordStore(tmp_path / "r.sqlite") as store:
        with pytest.raises(EdgeError, match=r"signed by bob .*whose key was revoked on 2026-11-20"):
            pull(good(tmp_path / "p.pack"), store, revoked)
        assert not list(store)


def test_a_signature_of_another_file_does_not_count(tmp_path: Path) -> None:
    """Somebody else's key with the signature of a trusted one."""
    found = members(good(tmp_path / "p.pack"))
    signature = json.loads(found[SIGNATURE])
    foreign = host_key(tmp_path / "foreign")
    forged = json.dumps({**signature, "key": foreign.public}).encode()
    path = zipped(tmp_path / "p.pack", {**found, SIGNATURE: forged})
    with RecordStore(tmp_path / "r.sqlite") as store:
        with pytest.raises(EdgeError, match="its signature is not that of its manifest"):
            pull(path, store, trusting(host_key(), foreign))
        assert not list(store)


def test_what_is_no_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.pack")
    with (
        RecordStore(tmp_path / "r.sqlite") as store,
        pytest.raises(EdgeError, match="no such file; give one that sdk records publish wrote"),
    ):
        pull(tmp_path / "p.pack", store, trusting(host_key()))
