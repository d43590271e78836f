"""Packs read: all of one is checked before any of it is used, and it is imported whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from device_agent.contract.manifest import ContractError, FileEntry
from device_agent.contract.signing import BundleSignature, short
from device_agent.contract.text import printable
from device_agent.contract.trust import TrustedKeys
from host.bundle.archive import Members, check_members, copy_member, reading
from host.calibration import Calibration
from host.calibration.foreign import calibration_from_elsewhere
from host.errors import EdgeError, UserError
from host.files import writing
from host.packs.manifest import CALIBRATION, MOST_MODELS, RECORDS, PackManifest, model_files, parse_manifest
from host.records import Record
from host.records.json_lines import Refused, read_lines

_KIND = "pack"


@dataclass(frozen=True)
class Origin:
    """The origin of a pack.

    Attributes:
        signer: what its signer calls itself; checked by their key.
        key: that signed it, in hexadecimal.
        made_at: UTC time in ISO format.
        version: the SHA-256 of its manifest.
    """

    signer: str
    key: str
    made_at: str
    version: str

    def data(self) -> dict[str, str]:
        """As the origin of a record has it (`RecordOrigin.pack`)."""
        return {"signer": self.signer, "key": self.key, "made_at": self.made_at, "version": self.version}


class PackReader:
    """A pack whose signature is trusted and whose files agree with its manifest.

    Args:
        path: of the pack, for messages.
        folder: with its files.
        manifest: what it says of itself.
        origin: where it is from.

    Attributes:
        manifest, origin: as given.
        calibration: of its board; None where it has none.
        refused: records that say what no measurement says; they are left out.

    Raises:
        EdgeError: the calibration is none, or is of another board.
    """

    def __init__(self, path: Path, folder: Path, manifest: PackManifest, origin: Origin) -> None:
        self._path = path
        self._folder = folder
        self.manifest = manifest
        self.origin = origin
        self.refused = Refused()
        self.calibration = self._calibration()

    def records(self) -> Iterator[Record]:
        """The records, each with the pack in its origin.

        Raises:
            EdgeError: a line is no record, or of another board, or there are others than the manifest says.
        """
        count, declared = 0, self.manifest.records
        for record in read_lines(self._folder / RECORDS, self.refused, f"{self._path}, {RECORDS}"):
            count += 1
            if count + self.refused.count > declared:
                break
            board = record.profile.get("board")
            if board != self.manifest.board:
                raise self._nothing(f"a record is of the board {printable(board, 100)}")
            yield replace(record, origin=replace(record.origin, pack=self.origin.data()))
        if count + self.refused.count != declared:
            raise self._nothing(f"it does not hold the {declared} records that its manifest names")

    @property
    def models(self) -> tuple[tuple[Path, Path, Path], ...]:
        """The files of each fine-tuned model: what it belongs to, card, weights. They are not trusted."""
        every = (model_files(number) for number in range(MOST_MODELS))
        there = (names for names in every if names[0] in self.manifest.files)
        return tuple((self._folder / a, self._folder / b, self._folder / c) for a, b, c in there)

    def refusal(self, reason: str) -> EdgeError:
        """The error for a pack of which nothing is taken.

        Args:
            reason: in one line.
        """
        return self._nothing(reason)

    def _calibration(self) -> Calibration | None:
        path = self._folder / CALIBRATION
        if not path.is_file():
            return None
        try:
            found = calibration_from_elsewhere(path.read_bytes())
        except ValueError as error:
            raise self._nothing(str(error)) from error
        if found.board != self.manifest.board:
            raise self._nothing(f"its calibration is of the board {printable(found.board, 100)}")
        return found

    def _nothing(self, reason: str) -> EdgeError:
        return EdgeError(f"pack {self._path}: {reason}: nothing was imported; ask for the pack again")


@contextmanager
def open_pack(path: Path, trusted: TrustedKeys) -> Iterator[PackReader]:
    """A pack, checked: signature, trust in the signer, names, sizes and hashes of all files.

    Args:
        path: of the file.
        trusted: keys whose packs are taken, and what was revoked.

    Raises:
        UserError: there is no such file.
        EdgeError: it is damaged or changed, or its signer is not trusted; says what to type.
        DeviceFull: no space left to unpack it.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give one that sdk records publish wrote")
    with TemporaryDirectory(prefix="edgetlm-pack-") as text:
        folder = Path(text)
        try:
            with writing(folder), reading(path, _KIND) as archive:
                members = check_members(archive, path, _KIND, _files)
                signature = _trusted_signature(members, trusted)
                for name, entry in members.files.items():
                    with (folder / name).open("xb") as file:
                        copy_member(archive, name, entry, file, _KIND)
        except ContractError as error:
            raise EdgeError(f"pack {path}: {error}; nothing was imported") from error
        manifest = parse_manifest(members.manifest)
        origin = Origin(signature.signer, signature.key, manifest.made_at, members.version)
        yield PackReader(path, folder, manifest, origin)


def _files(manifest: bytes) -> Mapping[str, FileEntry]:
    return parse_manifest(manifest).files


def _trusted_signature(members: Members, trusted: TrustedKeys) -> BundleSignature:
    """The signature of a pack by a trusted key; it has been checked.

    Raises:
        ContractError: there is none, or its signer is not trusted here or was revoked.
    """
    signature = members.signature
    if signature is None:
        raise ContractError("it is not signed: ask for one that sdk records publish wrote")
    trusted.check_not_revoked(members.version, signature)
    if all(one.key != signature.key for one in trusted.keys):
        raise ContractError(
            f"it is signed by {printable(signature.signer)} (key {short(signature.key)}), who is not trusted"
            f" here; if you know them: sdk keys trust {signature.key} --name NAME"
        )
    return signature
