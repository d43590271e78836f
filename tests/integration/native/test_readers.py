"""The native executor's readers of what comes from elsewhere decide as Python's do."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from device_agent.contract import ed25519, strict_json
from device_agent.contract.manifest import check_manifest
from device_agent.contract.signing import SCHEMA, check_signature, parse_signature, signed_message
from device_agent.contract.text import printable
from device_agent.contract.trust import TrustStore
from device_agent.store.opened_bundle import BundleError, open_bundle
from host.keys import host_key
from tests.integration.native.known_answers import (
    DIGESTS,
    ORDER,
    SIGNATURES,
    UNUSUAL_POINTS,
    digest_inputs,
    signature_inputs,
)
from tests.integration.native.mutations import change_field, mutated, mutated_manifests
from tests.integration.native.process import read_with
from tests.signing import seal, trust
from tests.vectors import vectors

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)

SIGNERS = ["alice@laptop", "é ü", "日本", "a" * 100, "a" * 101, "", " a", "a ", "a  b", "a\nb", "a\u00a0b"]
SIGNERS += ["a\u202eb", "a\u200bb", "a\x1b[2Jb", "\U000e0001", "\u0378", "\U0001f600"]


def said(read: Callable[[], object]) -> str:
    """What a reader of Python decides, in the native one's words."""
    try:
        read()
    except ValueError as error:
        return f"refused {error}"
    return "ok"


def _check_signed(manifest: bytes, signature: bytes) -> None:
    check_signature(manifest, parse_signature(signature))


def agree(found: str, expected: str) -> bool:
    """Whether both decide the same, for the same reason; of bad JSON there may be several."""
    same_reason = found == expected or "is not valid JSON" in expected
    return found.split()[0] == expected.split()[0] and (same_reason or "this version reads" in expected)


def test_manifests_are_read_as_python_reads_them(executable: Path) -> None:
    inputs = list(mutated_manifests(1500, seed=12))
    expected = [said(functools.partial(check_manifest, data)) for data in inputs]
    for data, found, wanted in zip(
        inputs, read_with([str(executable)], "manifest", inputs), expected, strict=True
    ):
        assert agree(found, wanted), (data, found, wanted)
    assert expected[0] == "ok" and 100 < expected.count("ok") < len(inputs) - 500


def test_json_is_read_as_python_reads_it(executable: Path) -> None:
    rng = random.Random(12)
    texts = [
        b'{"a":[1,2,{"b":null}],"c":"x\\u00e9\\n\\ud83d\\ude00","d":true}',
        b"[1,-0,0.5,1e5,-1E-5,1234567890123456789,9223372036854775807,-9223372036854775808]",
        b"[1e-400,1.7976931348623157e308]",
        b"[" * 64 + b"]" * 64,
        b'{"a":' * 64 + b"1" + b"}" * 64,
        b' \t\r\n"\\\\ \\" \\/ \x7f" ',
    ]
    refused = [
        b"",
        b"[1e309]",
        b"[9223372036854775808]",
        b"[" * 65 + b"]" * 65,
        b'{"a":1,"\\u0061":2}',
        b"01",
    ]
    inputs = texts + refused + [mutated(rng.choice(texts), rng) for _ in range(2000)]
    found = read_with([str(executable)], "json", inputs)
    for data, answer in zip(inputs, found, strict=True):
        wanted = said(functools.partial(strict_json.parse, data, len(data)))
        assert agree(answer, wanted), (data, answer, wanted)
    assert set(found[: len(texts)]) == {"ok"}
    assert all(one.startswith("refused") for one in found[len(texts) :][: len(refused)])


def test_signatures_are_read_as_python_reads_them(executable: Path) -> None:
    rng = random.Random(12)
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw().hex()
    inputs, expected = [], []
    for _ in range(400):
        manifest, signer = rng.randbytes(rng.randrange(200)), rng.choice(SIGNERS)
        signature = key.sign(signed_message(manifest, signer)).hex()
        fields = {"schema": SCHEMA, "signer": signer, "key": public, "signature": signature}
        what = rng.random()
        if what < 0.15:
            manifest += b" "
        elif what < 0.4:
            fields[rng.choice(list(fields))] = rng.choice(
                ["", None, 5, "a" * 64, "A" * 128, "0" * 128, "eve"]
            )
        elif what < 0.5:
            del fields[rng.choice(list(fields))]
        data = json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode()
        if what > 0.9:
            data = mutated(data, rng)
        inputs.append(struct.pack(">I", len(manifest)) + manifest + data)
        expected.append(said(functools.partial(_check_signed, manifest, data)))
    for given, found, wanted in zip(
        inputs, read_with([str(executable)], "signature", inputs), expected, strict=True
    ):
        assert agree(found, wanted), (given, found, wanted)
    assert 20 < expected.count("ok") < 380
    assert read_with([str(executable)], "signature", [b"", b"\0\0\0\x09abc"]) == [
        "refused there is no manifest",
        "refused the manifest is cut short",
    ]


def test_lists_of_trusted_keys_are_read_as_python_reads_them(executable: Path, tmp_path: Path) -> None:
    rng = random.Random(12)
    entry = {"name": "alice@laptop", "since": "2026-01-02"}
    whole = {
        "schema": "edgetlm.trust/1",
        "keys": [{"key": "a" * 64, **entry}, {"key": "b" * 64, **entry}],
        "revoked": [{"identity": "c" * 64, **entry}],
    }
    inputs = [json.dumps(whole).encode(), b"[]", b'{"schema": "edgetlm.trust/1"}']
    for _ in range(500):
        fields = copy.deepcopy(whole)
        change_field(fields, rng)
        data = json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        inputs.append(mutated(data, rng) if rng.random() < 0.3 else data)
    path = tmp_path / "trust.json"
    decided = []
    for data, found in zip(inputs, read_with([str(executable)], "trust", inputs), strict=True):
        path.write_bytes(data)
        decided.append(said(TrustStore(str(path)).read))
        assert found.split()[0] == decided[-1].split()[0], (data, found, decided[-1])
    assert decided[0] == "ok" and 20 < decided.count("ok") < len(inputs) - 100


def test_folders_are_checked_as_python_checks_them(executable: Path, tmp_path: Path) -> None:
    rng = random.Random(12)
    keys, stranger = tmp_path / "device" / "trust.json", host_key(tmp_path / "stranger")
    trust(keys)
    inputs, expected = [], []
    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("lib.so", "params.bin", "notes.txt"):
            (folder / name).write_bytes(rng.randbytes(rng.randrange(3)))
        seal(folder, rng.choice([None, None, None, stranger]))
        _spoil(folder, rng)
        for level in ("signed", "unsigned"):
            inputs.append(b"\0".join(str(part).encode() for part in (folder, keys, level)))
            expected.append(said(functools.partial(_check_folder, folder, keys, level)))
    for given, found, wanted in zip(
        inputs, read_with([str(executable)], "bundle", inputs), expected, strict=True
    ):
        assert agree(found, wanted), (given, found, wanted)
    assert 20 < expected.count("ok") < 100


def _spoil(folder: Path, rng: random.Random) -> None:
    """Change one thing in a folder, or nothing."""
    file = folder / rng.choice(["lib.so", "params.bin", "manifest.json", "manifest.sig"])
    content = file.read_bytes()
    what = rng.randrange(12)
    if what == 0:
        file.unlink()
    elif what == 1:
        file.write_bytes(content + b" ")
    elif what == 2:
        file.write_bytes(content[:-1] + b"\xff")
    elif what == 3:
        file.unlink()
        file.symlink_to("notes.txt")
    elif what == 4:
        file.unlink()
        os.mkfifo(file)
    elif what == 5:
        file.unlink()
        file.mkdir()
    elif what == 6:
        (folder / rng.choice(["more", "a\u202eb", ".hidden"])).touch()
    elif what == 7:
        file.rename(folder / os.fsdecode(b"\xff"))


def _check_folder(folder: Path, keys: Path, level: str) -> None:
    """What the agent does, in the words of a ValueError."""
    try:
        open_bundle(str(folder), level, str(keys))
    except BundleError as error:
        raise ValueError(printable(error)) from error


def test_digests_are_those_of_the_standard(executable: Path) -> None:
    # The portable function and the processor's own: the reader asks both.
    assert set(read_with([str(executable)], "sha256", digest_inputs())) == {"ok"}
    assert all(hashlib.sha256(message).digest() == digest for digest, message in DIGESTS)
    assert read_with([str(executable)], "sha256", [bytes(32) + b"abc"]) == ["refused another digest"]
    rng = random.Random(12)
    messages = [rng.randbytes(length) for length in range(300)]
    inputs = [hashlib.sha256(message).digest() + message for message in messages]
    assert set(read_with([str(executable)], "sha256", inputs)) == {"ok"}


def test_signatures_are_those_of_the_standard(executable: Path) -> None:
    assert set(read_with([str(executable)], "ed25519", signature_inputs())) == {"ok"}
    assert all(ed25519.verify(key, message, signature) for key, signature, message in SIGNATURES)


def test_unusual_signatures_are_decided_as_python_does(executable: Path) -> None:
    rng = random.Random(12)
    private = Ed25519PrivateKey.generate()
    cases = []
    for _ in range(300):
        key, message = private.public_key().public_bytes_raw(), rng.randbytes(20)
        signature = private.sign(message)
        what = rng.randrange(6)
        if what == 0:
            key = rng.choice([*UNUSUAL_POINTS, rng.randbytes(32)])
        elif what == 1:
            signature = rng.choice(UNUSUAL_POINTS) + signature[32:]
        elif what == 2:
            signature = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(
                32, "little"
            )
        elif what == 3:
            key, signature = rng.choice(UNUSUAL_POINTS), rng.choice(UNUSUAL_POINTS) + bytes(32)
        elif what == 4:
            place = rng.randrange(64)
            signature = (
                signature[:place] + bytes([signature[place] ^ 1 << rng.randrange(8)]) + signature[place + 1 :]
            )
        cases.append((key, signature, message))
    found = read_with([str(executable)], "ed25519", [b"".join(case) for case in cases])
    for (key, signature, message), answer in zip(cases, found, strict=True):
        assert (answer == "ok") == ed25519.verify(key, message, signature), (key, signature, message)
    assert 30 < found.count("ok") < 120


@pytest.mark.parametrize("key", UNUSUAL_POINTS)
def test_a_key_under_which_anything_is_signed_is_refused(key: bytes, executable: Path) -> None:
    # With a neutral key, the neutral commitment and a scalar of zero every message is "signed".
    signature = UNUSUAL_POINTS[0] + bytes(32)
    assert not ed25519.verify(key, b"anything", signature)
    assert read_with([str(executable)], "ed25519", [key + signature + b"anything"])[0] != "ok"


def test_an_unknown_reader_is_named(executable: Path) -> None:
    done = subprocess.run([executable, "--read", "tea\x1b"], input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"there is no reader of tea\\x1b\n")


def test_measuring_is_decided_by_the_vectors_as_in_python(executable: Path) -> None:
    cases = vectors("measuring")
    answers = read_with([str(executable)], "measuring", [json.dumps(case).encode() for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        assert answer.startswith("ok "), (case["name"], answer)
        assert json.loads(answer[3:]) == case["expected"], case["name"]
