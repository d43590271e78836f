"""What the tests of faults send to an agent."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tests.integration.agent.conftest import write_manifest

MB = 1 << 20


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(connection, data: bytes) -> str:
    """Uploads some bytes."""
    digest = digest_of(data)
    connection.request({"command": "file.put", "sha256": digest}, [data])
    return digest


def uploads(service) -> list[str]:
    return sorted(entry.name for entry in (service.home / "device/uploads").iterdir())


def large_bundle(folder: Path, megabytes: int = 48) -> Path:
    """A bundle whose files take a while to install."""
    folder.mkdir()
    (folder / "lib.so").write_bytes(os.urandom(1000))
    (folder / "params.bin").write_bytes(os.urandom(megabytes * MB))
    write_manifest(folder)
    return folder


def send_bundle(connection, bundle: Path) -> dict[str, str]:
    return {file.name: put(connection, file.read_bytes()) for file in bundle.iterdir()}
