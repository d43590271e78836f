"""The manifest of a pack, `manifest.json`: its fields, and their checks on reading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from device_agent.contract import strict_json
from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import ContractError, FileEntry, check_files
from device_agent.contract.text import is_printable

SCHEMA = "edgetlm.pack/1"
RECORDS, CALIBRATION = "records.jsonl", "calibration.json"
# The endings of the files of a fine-tuned model, whose names begin with its number.
MODEL_FILES = (".belongs.json", ".card.json", ".safetensors")
MOST_MODELS = 16
_MAX_BYTES = 1 << 16
_VERSIONS = 100


@dataclass(frozen=True)
class PackManifest:
    """The description of a pack.

    Attributes:
        board: that everything in it was measured on.
        made_at: UTC time in ISO format.
        versions: of the packages that made it, by name.
        records: number of them.
        files: by name.
    """

    board: str
    made_at: str
    versions: Mapping[str, str]
    records: int
    files: Mapping[str, FileEntry]

    def data(self) -> bytes:
        """The content of the file, which is signed."""
        fields = {
            "schema": SCHEMA,
            "board": self.board,
            "made_at": self.made_at,
            "versions": dict(self.versions),
            "records": self.records,
            "files": {name: entry._asdict() for name, entry in self.files.items()},
        }
        return json.dumps(fields, indent=1, sort_keys=True).encode()


def parse_manifest(data: bytes) -> PackManifest:
    """The content of a pack's manifest.

    Raises:
        ContractError: it is none of this schema, or says what no pack says.
    """
    try:
        content = strict_json.parse(data, _MAX_BYTES, "its manifest")
    except ValueError as error:
        raise ContractError(str(error)) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ContractError(f"its manifest is not of the schema {SCHEMA}: it is no pack of records")
    fields = Fields(content, lambda text: ContractError(f"its manifest is wrong: {text}"))
    board, made_at = fields.name("board"), fields.name("made_at")
    if not is_printable(board) or not _is_date(made_at):
        raise ContractError("its manifest is wrong: it names no board, or no date in the past")
    versions = fields.text_map("versions", _VERSIONS)
    if not all(map(is_printable, (*versions, *versions.values()))):
        raise ContractError("its manifest is wrong: its versions are no names and numbers")
    records = fields.whole("records", 1, LIMITS.records.file_lines)
    files = check_files(content.get("files"))
    models = [model_files(number) for number in range(MOST_MODELS)]
    whole = {name for names in models if set(names) <= set(files) for name in names}
    if RECORDS not in files or set(files) - {RECORDS, CALIBRATION} - whole:
        raise ContractError(f"its manifest names other files than {RECORDS}, {CALIBRATION} and models")
    return PackManifest(board, made_at, versions, records, files)


def model_files(number: int) -> tuple[str, str, str]:
    """The names of the files of a fine-tuned model: what it belongs to, its card, its weights."""
    belongs, card, weights = (f"model-{number}{ending}" for ending in MODEL_FILES)
    return belongs, card, weights


def _is_date(text: str) -> bool:
    """Whether a text is a time in the past: the younger of two packs counts."""
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        return False
    latest = datetime.now(UTC) + timedelta(seconds=LIMITS.records.ahead_s)
    return is_printable(text) and made.tzinfo is not None and made <= latest
