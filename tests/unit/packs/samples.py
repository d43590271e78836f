"""Packs, good ones and such as somebody made to do harm."""

from __future__ import annotations

import json
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_agent.contract.manifest import MANIFEST, SIGNATURE
from device_agent.contract.trust import TrustedKey, TrustedKeys
from host.calibration import Calibration
from host.keys import HostKey, host_key
from host.packs import write_pack
from host.packs.manifest import CALIBRATION, RECORDS
from host.records.record import line_of
from tests.signing import entry
from tests.unit.calibration.samples import calibration
from tests.unit.records.samples import failure, record

LINES = [record(3.0), record(2.0, tile=8, proposer="tlm"), failure()]
BOARD = "x86_64"


def trusting(*keys: HostKey) -> TrustedKeys:
    """The keys of a host that trusts these."""
    return TrustedKeys(tuple(TrustedKey(key.public, "somebody", "2026-11-24") for key in keys))


def good(path: Path, calibrated: Calibration | None = None) -> Path:
    """A pack of three records and a calibration, signed with the tests' own key."""
    write_pack(path, BOARD, LINES, calibrated or calibration())
    return path


def contents() -> dict[str, bytes]:
    """The files of such a pack."""
    lines = "".join(line_of(one) + "\n" for one in LINES)
    return {RECORDS: lines.encode(), CALIBRATION: json.dumps(calibration().to_json()).encode()}


def made(path: Path, given: Mapping[str, bytes], key: HostKey | None = None, **changes: Any) -> Path:
    """A pack with other files than it should have, or another manifest, well signed.

    Args:
        path: of the file.
        given: files by name.
        key: that signs; the tests' own if None.
        changes: of fields of the manifest.
    """
    fields = {
        "schema": "edgetlm.pack/1",
        "board": BOARD,
        "made_at": "2026-11-24T10:00:00+00:00",
        "versions": {"edgetlm": "0"},
        "records": len(LINES),
        "files": {name: entry(content) for name, content in given.items()},
        **changes,
    }
    manifest = json.dumps(fields).encode()
    signature = json.dumps((key or host_key()).sign(manifest).fields()).encode()
    return zipped(path, {**given, MANIFEST: manifest, SIGNATURE: signature})


def members(path: Path) -> dict[str, bytes]:
    """What an archive holds."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(path: Path, files: Mapping[str, bytes], link: str = "") -> Path:
    """An archive of some files, of which `link` says that it is a symbolic link."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            kind = stat.S_IFLNK if name == link else stat.S_IFREG
            info.external_attr = (kind | 0o644) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path
