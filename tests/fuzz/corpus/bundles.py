"""Bundles that did harm once: names that are paths, numbers beyond memory, archives that swell."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Mapping
from random import Random
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from device_agent.contract.manifest import MANIFEST, SCHEMA, STATE_SCHEMA
from host.keys import HostKey
from tests.fuzz.case import Case
from tests.fuzz.mutate import TEXTS, mangled

# Every engine of the board's system has the same files.
BACKENDS = ("tvm", "onnxruntime", "litert", "tensorrt-fp16")
_MODELS = {
    "tvm": "lib.so",
    "onnxruntime": "model.onnx",
    "litert": "model.tflite",
    "tensorrt-fp16": "model.onnx",
}
_PATHS = ("../x", "/tmp/x", "..\\x", ".", "..", "", "a/b", "x\n", "\ud800", "a\0b", "-x", ".hidden")


@functools.cache
def signer() -> HostKey:
    """The key that all cases are signed with; always the same one, and nobody else's."""
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return HostKey("fuzz@tests", private.public_key().public_bytes(*raw).hex(), private.sign)


def contents(backend: str) -> dict[str, bytes]:
    """The files of a small bundle."""
    files = {_MODELS[backend]: b"\x7fELF of no use" * 9, "golden.npz": b"PK no archive", "tasks.json": b"{}"}
    return {**files, "params.bin": bytes(range(256)) * 2} if backend == "tvm" else files


def decoder_manifest() -> dict[str, Any]:
    """What a manifest says of a language model."""
    fields = manifest("tvm")
    token, logits = {"shape": [1], "dtype": "int32"}, {"shape": [1, 32], "dtype": "float32"}
    fields["schema"] = STATE_SCHEMA
    fields["signature"] = {
        "inputs": [{"name": "tokens", **token}, {"name": "position", **token}],
        "outputs": [{"name": "logits", **logits}],
        "length": None,
    }
    fields["state"] = [
        {"name": f"key_{layer}", "shape": [2, 4, 8, 16], "dtype": "float32"} for layer in (0, 1)
    ]
    fields["decoder"] = {
        "context": 64,
        "chunk": 16,
        "long_chunk": 32,
        "vocabulary": 32,
        "end_tokens": [2, 31],
        "verified": 4,
        "sequences": 2,
    }
    return fields


def manifest(backend: str) -> dict[str, Any]:
    """What a manifest says of it: all that hosts write, in its right form."""
    files = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents(backend).items()
    }
    tensors = [{"name": "x", "shape": [1, 8], "dtype": "float32", "open": [1]}]
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "name": "small",
        "created": "2026-11-22T10:00:00+00:00",
        "backend": backend,
        "model": _MODELS[backend],
        "threads": 2,
        "model_hash": "0" * 64,
        "board": "rpi5",
        "device": "local",
        "target": {"kind": "llvm", "mtriple": "x86_64-linux-gnu"},
        "signature": {
            "inputs": tensors,
            "outputs": [{"name": "y", "shape": [], "dtype": "int64"}],
            "length": {"name": "seq", "low": 1, "high": 8, "measured": [1, 8]},
        },
        "files": files,
    }
    if backend == "tvm":
        fields["parameters"] = [
            {"offset": 0, "nbytes": 64, "shape": [4, 4], "dtype": "float32"},
            {"offset": 64, "nbytes": 3, "shape": [3], "dtype": "int8"},
        ]
    return fields


def zipped(rng: Random, files: Mapping[str, bytes]) -> bytes:
    """An archive of a bundle, at times one whose members or directory are not as they should be."""
    made = io.BytesIO()
    kind = rng.randrange(6)
    with zipfile.ZipFile(made, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
        if kind == 0:
            name = rng.choice(("../x", "/tmp/x", "lib.so/", "a/../../x", *TEXTS)).replace("\0", "")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a name that is there twice
                archive.writestr(_member(name or "x", rng.choice((0o100644, 0o120777, 0o40755))), b"/etc/x")
    return mangled(rng, made.getvalue()) if kind in (1, 2) else made.getvalue()


def _member(name: str, mode: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name.encode("utf-8", "replace").decode())
    member.external_attr = mode << 16
    return member


@functools.cache
def cases() -> list[Case]:
    """One a fault."""
    return [*_manifests(), *_signatures(), *_zips()]


def _manifests() -> list[Case]:
    texts: dict[str, bytes] = {
        "list": b"[]",
        "deep": b"[" * 100_000,
        "deep-object": b'{"a":' * 100_000,
        "nul": b"\0",
        "nan": b'{"schema": NaN}',
        "surrogate": b'{"schema": "\\ud83d"}',
        "not-utf-8": "\ud83d".encode("utf-8", "surrogatepass"),
        "schema-1": b'{"schema": "edgetlm.bundle/1"}',
        "escape": json.dumps(manifest("tvm") | {"name": "\x1b]0;x\x07"}).encode(),
    }
    for number, path in enumerate(_PATHS):
        texts[f"name-{number}"] = json.dumps(manifest("tvm") | {"name": path}).encode()
        texts[f"model-{number}"] = json.dumps(manifest("tvm") | {"model": path}).encode()
        fields = manifest("onnxruntime")
        fields["files"][path] = {"size": 0, "sha256": "0" * 64}
        texts[f"file-{number}"] = json.dumps(fields).encode()
    for number, threads in enumerate((10**6, -1, 0, 1.5, "2", True, None, 1e999)):
        texts[f"threads-{number}"] = json.dumps(manifest("tvm") | {"threads": threads}).encode()
    for number, change in enumerate(
        ({"offset": -64 * 4096}, {"offset": 1 << 62}, {"offset": 448, "nbytes": 128}, {"offset": 1})
    ):
        fields = manifest("tvm")
        fields["parameters"][0].update(change)
        texts[f"parameter-{number}"] = json.dumps(fields).encode()
    for number, shape in enumerate(([-1, -8], [10**12], [1 << 62, 1 << 62], [0, 1 << 63], [1] * 40)):
        fields = manifest("tvm")
        fields["signature"]["inputs"][0]["shape"] = shape
        texts[f"shape-{number}"] = json.dumps(fields).encode()
        fields = manifest("tvm")
        fields["parameters"][0]["shape"] = shape
        texts[f"parameter-shape-{number}"] = json.dumps(fields).encode()
    return [Case(f"manifest-{name}", {"manifest": text}) for name, text in texts.items()]


def _signatures() -> list[Case]:
    text = json.dumps(manifest("tvm")).encode()
    good = signer().sign(text).fields()
    changes: list[dict[str, str]] = [
        {},
        {"signer": "somebody else"},
        {"signer": "a\n"},
        {"signer": "\ud800"},
        {"signature": good["signature"].upper()},
        {"signature": "0" * 128},
        {"key": "0" * 64},
        {"key": "01" + "00" * 31},
        {"key": "ff" * 32},
        {"key": good["key"] + "\n"},
    ]
    head = struct.pack(">I", len(text)) + text
    return [
        Case(f"signature-{number}", {"signature": head + json.dumps(good | change).encode()})
        for number, change in enumerate(changes)
    ]


def _zips() -> list[Case]:
    files = contents("tvm")
    spaces = io.BytesIO()
    with zipfile.ZipFile(spaces, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(MANIFEST, "w") as member:
        for _ in range(64):
            member.write(b" " * (1 << 20))
    found = {"spaces": spaces.getvalue()}
    for number, path in enumerate(("/tmp/fuzz-x", "../../x", "a/../../../x")):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
            archive.writestr(MANIFEST, json.dumps(manifest("tvm") | {"name": path}))
        found[f"named-{number}"] = made.getvalue()
    made = io.BytesIO()
    fields = manifest("tvm")
    swollen = bytes(300 << 20)
    fields["files"]["params.bin"] = {"size": len(swollen), "sha256": hashlib.sha256(swollen).hexdigest()}
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, "params.bin": swollen, MANIFEST: json.dumps(fields).encode()}.items():
            archive.writestr(name, data)
    found["swollen"] = made.getvalue()
    return [Case(f"zip-{name}", {"zip": data}) for name, data in found.items()]
