"""Bundles made by hand: the files of a folder, sealed by a manifest and signed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_agent.contract.manifest import MANIFEST, SCHEMA, SIGNATURE
from device_agent.contract.signing import BundleSignature
from device_agent.contract.trust import TrustStore
from host.keys import HostKey, host_key


def entry(content: bytes) -> dict[str, Any]:
    """What a manifest says of a file."""
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def seal(folder: Path, key: HostKey | None = None, **fields: Any) -> str:
    """Write the manifest of the files that lie in `folder`, and its signature.

    Args:
        folder: of the bundle.
        key: that signs; the tests' own if None.
        fields: of the manifest, beside or instead of those of a small model without inputs.

    Returns:
        The version.
    """
    files = {
        file.name: entry(file.read_bytes())
        for file in sorted(folder.iterdir())
        if file.name not in (MANIFEST, SIGNATURE)
    }
    manifest = {
        "schema": SCHEMA,
        "name": "small",
        "backend": "tvm",
        "model": "lib.so",
        "threads": 1,
        "signature": {"inputs": [], "outputs": []},
        "files": files,
        **fields,
    }
    return sign(folder, json.dumps(manifest).encode(), key)


def sign(folder: Path, manifest: bytes, key: HostKey | None = None) -> str:
    """Write a manifest as it is given, and its signature; returns the version."""
    write_signature(folder, (key or host_key()).sign(manifest))
    (folder / MANIFEST).write_bytes(manifest)
    return hashlib.sha256(manifest).hexdigest()


def write_signature(folder: Path, signature: BundleSignature) -> None:
    """Write `manifest.sig`."""
    (folder / SIGNATURE).write_text(json.dumps(signature.fields()))


def reseal(folder: Path, key: HostKey | None = None, **changes: Any) -> str:
    """Change fields of a bundle's manifest and sign it again; returns the version."""
    fields: Mapping[str, Any] = json.loads((folder / MANIFEST).read_text())
    return sign(folder, json.dumps({**fields, **changes}).encode(), key)


def trust(keys: Path | str, key: HostKey | None = None) -> None:
    """Have a file of trusted keys name a key, the tests' own if None."""
    wanted = key or host_key()
    TrustStore(str(keys)).trust(wanted.public, wanted.name)
