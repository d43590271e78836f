"""Packs written: sealed in a folder, signed with the host's key, and packed as one file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from device_agent.contract.manifest import MANIFEST, SIGNATURE, ContractError, FileEntry
from device_agent.contract.signing import BundleSignature
from host.bundle import pack
from host.calibration import Calibration
from host.errors import UserError
from host.files import file_hash, writing
from host.keys import host_key
from host.packs.manifest import CALIBRATION, MOST_MODELS, RECORDS, PackManifest, model_files, parse_manifest
from host.records import Record
from host.records.json_lines import write_lines
from host.versions import versions


def write_pack(
    path: Path,
    board: str,
    records: Iterable[Record],
    calibration: Calibration | None,
    models: Sequence[tuple[Path, Path, Path]] = (),
) -> tuple[PackManifest, BundleSignature]:
    """Write a pack, whole or not at all, in place of an earlier file.

    Args:
        path: of the file.
        board: that everything was measured on.
        records: at least one.
        calibration: of the board; None where it has none.
        models: files of each language model that was fine-tuned for it: what it belongs to, card, weights.

    Returns:
        What the pack says of itself, and who signed it.

    Raises:
        UserError: there are no records or too many models, `path` is a folder, or the key cannot be used.
        DeviceFull: no space left.
    """
    if len(models) > MOST_MODELS:
        raise UserError(
            f"{board} has {len(models)} fine-tuned models, a pack holds {MOST_MODELS}: publish a device of it"
        )
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file to write")
    key = host_key()
    with TemporaryDirectory(prefix="edgetlm-pack-") as text, writing(path):
        folder = Path(text)
        count = write_lines(records, folder / RECORDS)
        if calibration is not None:
            (folder / CALIBRATION).write_text(json.dumps(calibration.to_json(), allow_nan=False))
        for number, sources in enumerate(models):
            for source, name in zip(sources, model_files(number), strict=True):
                shutil.copyfile(source, folder / name)
        files = {one.name: FileEntry(one.stat().st_size, file_hash(one)) for one in sorted(folder.iterdir())}
        manifest = PackManifest(board, datetime.now(UTC).isoformat(), versions(), count, files)
        data = manifest.data()
        try:
            parse_manifest(data)
        except ContractError as error:
            raise UserError(f"no pack can be made of {count} records of {board}: {error}") from error
        signature = key.sign(data)
        (folder / MANIFEST).write_bytes(data)
        (folder / SIGNATURE).write_text(json.dumps(signature.fields()))
        path.parent.mkdir(parents=True, exist_ok=True)
        pack(folder, path)
    return manifest, signature
