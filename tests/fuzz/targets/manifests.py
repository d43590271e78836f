"""Manifests, signatures and bundles: the contract's readers, the host's and the native executor's."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from device_agent.contract.manifest import MANIFEST, SIGNATURE, check_manifest
from device_agent.contract.signing import check_signature, parse_signature
from device_agent.contract.trust import TrustStore
from device_agent.store.opened_bundle import BundleError as DeviceBundleError
from device_agent.store.opened_bundle import open_bundle
from host import bundle as host_bundle
from host.errors import EdgeError
from tests.fuzz.case import Case, Outcome, Tree, complaint
from tests.fuzz.corpus import bundles as found
from tests.fuzz.mutate import CANARY, TEXTS, grown, mangled, written
from tests.fuzz.targets.native import NativeReader, Verdict, disagreement

_KINDS = ("manifest", "manifest", "manifest", "signature", "directory", "zip")


class Manifests:
    """The target: the first file's name is the kind of the case."""

    name = "manifests"
    apart = False

    def __init__(self) -> None:
        self._native = {kind: NativeReader(kind) for kind in ("manifest", "signature")}
        self._place = Path()

    def open(self, place: Path) -> None:
        """A folder with what may be written to, and one that may not."""
        self._place = place
        (place / "outside" / "inside").mkdir(parents=True)
        (place / "outside" / "secret").write_text("not of a bundle")
        os.chdir(place / "outside" / "inside")
        self._keys = place / "device" / "trust.json"
        TrustStore(str(self._keys)).trust(found.signer().public, found.signer().name)
        self._tree = Tree(place / "outside")

    def close(self) -> None:
        """End the readers."""
        for reader in self._native.values():
            reader.close()

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        return found.cases()

    def case(self, seed: int) -> Case:
        """A manifest by itself, with a signature, or in a bundle."""
        rng = Random(f"manifests/{seed}")
        kind = rng.choice(_KINDS)
        name = f"{kind}-{seed}"
        fields = found.manifest(rng.choice(found.BACKENDS))
        if rng.random() < 0.2:
            fields = found.decoder_manifest()
        if kind == "manifest":
            return Case(name, {kind: _changed(rng, fields)})
        if kind == "signature":
            return Case(name, {kind: _signed(rng, fields)})
        files = {f"bundle/{key}": data for key, data in _bundle(rng, fields).items()}
        if kind == "directory":
            return Case(name, {kind: b"", **files})
        return Case(
            name, {kind: found.zipped(rng, {key.split("/", 1)[1]: data for key, data in files.items()})}
        )

    def run(self, case: Case) -> Outcome:
        """Every reader of it decides the same, and writes nowhere else."""
        kind = next(iter(case.files))
        outcome = _READ[kind](self, case)
        violation = outcome.violation or self._tree.violation()
        return Outcome(outcome.kind, outcome.message, violation)

    def _manifest(self, case: Case) -> Outcome:
        return self._both("manifest", case.main, lambda: check_manifest(case.main))

    def _signature(self, case: Case) -> Outcome:
        (size,) = struct.unpack(">I", case.main[:4])
        manifest, signature = case.main[4 : 4 + size], case.main[4 + size :]
        return self._both(
            "signature", case.main, lambda: check_signature(manifest, parse_signature(signature))
        )

    def _both(self, kind: str, data: bytes, read: Callable[[], object]) -> Outcome:
        verdict = _python(read)
        wrong = "" if verdict.accepted else complaint(verdict.reason)
        return _outcome(verdict, wrong or disagreement(verdict, self._native[kind].read(data)))

    def _directory(self, case: Case) -> Outcome:
        folder = self._fresh("bundle")
        for name, content in list(case.files.items())[1:]:
            path = folder / name.split("/", 1)[1]
            path.write_bytes(content)
        host = _host(lambda: host_bundle.load(folder))
        device = _device(lambda: open_bundle(str(folder), "signed", str(self._keys)))
        anyone = _device(lambda: open_bundle(str(folder), "unsigned", str(self._keys)))
        wrong = next((w for w in map(_wrong, (host, device, anyone)) if w), "")
        if device.accepted and not anyone.accepted:
            wrong = "a bundle that is trusted is refused where trust is not asked for"
        if host.accepted and not anyone.accepted:
            wrong = f"the host takes what the device refuses: {anyone.reason}"
        return _outcome(anyone, wrong)

    def _zip(self, case: Case) -> Outcome:
        path = self._fresh("zips") / "model.zip"
        path.write_bytes(case.main)
        scratch = self._fresh("scratch")
        checked = _host(lambda: host_bundle.load(path))
        made: list[Path] = []
        unpacked = _host(lambda: made.append(host_bundle.unpacked(path, scratch)))
        wrong = _wrong(checked) or _wrong(unpacked)
        if checked.accepted != unpacked.accepted:
            wrong = f"read and unpacked differ: {checked} and {unpacked}"
        if made and not made[0].is_relative_to(scratch):
            wrong = f"unpacked to {made[0]}"
        if (
            made
            and not (
                device := _device(lambda: open_bundle(str(made[0]), "unsigned", str(self._keys)))
            ).accepted
        ):
            wrong = f"the host unpacks what the device refuses: {device.reason}"
        if not made and any(scratch.iterdir()):
            wrong = "what is refused leaves files behind"
        return _outcome(unpacked, wrong)

    def _fresh(self, name: str) -> Path:
        folder = self._place / name
        if folder.exists():
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        folder.mkdir(exist_ok=True)
        return folder


_READ: dict[str, Callable[[Manifests, Case], Outcome]] = {
    "manifest": Manifests._manifest,
    "signature": Manifests._signature,
    "directory": Manifests._directory,
    "zip": Manifests._zip,
}


def _outcome(verdict: Verdict, violation: str) -> Outcome:
    kind = "ok" if verdict.accepted else "refused"
    return Outcome(kind, "" if verdict.accepted else verdict.reason, violation)


def _python(read: Callable[[], object]) -> Verdict:
    try:
        read()
    except ValueError as error:
        return Verdict(False, str(error))
    return Verdict(True, "")


def _host(read: Callable[[], object]) -> Verdict:
    try:
        read()
    except EdgeError as error:
        return Verdict(False, str(error))
    return Verdict(True, "")


def _device(read: Callable[[], object]) -> Verdict:
    try:
        read()
    except DeviceBundleError as error:
        return Verdict(False, str(error))
    return Verdict(True, "")


def _wrong(verdict: Verdict) -> str:
    return "" if verdict.accepted else complaint(verdict.reason)


def _changed(rng: Random, fields: dict[str, Any]) -> bytes:
    if rng.random() < 0.2:
        return mangled(rng, json.dumps(fields).encode())
    return written(rng, grown(rng, fields))


def _signed(rng: Random, fields: dict[str, Any]) -> bytes:
    manifest = json.dumps(fields).encode()
    signature: Any = found.signer().sign(manifest).fields()
    kind = rng.randrange(6)
    if kind == 0:
        manifest = mangled(rng, manifest)
    elif kind < 3:
        signature = grown(rng, signature)
    elif kind == 3:
        signature["signer"] = rng.choice(TEXTS)
    text = written(rng, signature) if kind < 5 else mangled(rng, json.dumps(signature).encode())
    return struct.pack(">I", len(manifest)) + manifest + text


def _bundle(rng: Random, fields: dict[str, Any]) -> dict[str, bytes]:
    """The files of a bundle of which one thing or another is not as it was signed."""
    files = found.contents(fields["backend"])
    kind = rng.randrange(8)
    manifest = json.dumps(fields).encode()
    if kind < 3:
        manifest = _changed(rng, fields)
    signature = json.dumps(found.signer().sign(manifest).fields()).encode()
    if kind == 3:
        signature = mangled(rng, signature)
    elif kind == 4:
        name = rng.choice(sorted(files))
        files[name] = mangled(rng, files[name])
    elif kind == 5:
        del files[rng.choice(sorted(files))]
    elif kind == 6:
        files[rng.choice(("extra.so", ".hidden", "lib.so~", CANARY, "manifest.json.bak"))] = b"x"
    if kind == 7 and rng.random() < 0.5:
        return {**files, MANIFEST: manifest}
    return {**files, MANIFEST: manifest, SIGNATURE: signature}
