"""Packs of what a board knows: made for other hosts, and taken from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from host.errors import UserError

if TYPE_CHECKING:
    from device_agent.contract.trust import TrustedKeys
    from host.calibration import Calibration
    from host.packs import Origin, PackReader
    from host.records import Record, RecordStore
    from host.tlm.model.sharing import CheckedModel


@dataclass(frozen=True)
class Published:
    """The content of a written pack.

    Attributes:
        board: that it is of.
        records: number of them.
        calibrated: whether its calibration is in it.
        models: number of fine-tuned language models in it.
        signer, key: who signed it, and the public key in hexadecimal.
    """

    board: str
    records: int
    calibrated: bool
    models: int
    signer: str
    key: str


@dataclass(frozen=True)
class Pulled:
    """The content that a pulled pack added.

    Attributes:
        board: that it is of.
        origin: who signed it, and when.
        new, found: records that are new, and all that it holds and that can be true.
        calibrated: whether its calibration is new here; None where it has none.
        refused: one line about records with impossible values; "" if there are none.
        models: fine-tuned language models that are used here from now on.
        notes: lines about models that are not.
    """

    board: str
    origin: Origin
    new: int
    found: int
    calibrated: bool | None
    refused: str = ""
    models: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Subject:
    """The device or the board whose records a pack gets.

    Attributes:
        board: its name.
        profile: of the only device, without threads; None for all devices of the board.
        calibration: None where there is none that applies.
    """

    board: str
    profile: Mapping[str, Any] | None
    calibration: Calibration | None

    def has(self, profile: Mapping[str, Any]) -> bool:
        """Whether a profile is of it."""
        from sdk.management.records import without_threads

        if self.profile is None:
            return profile.get("board") == self.board
        return without_threads(profile) == self.profile

    def records_of(self, store: RecordStore) -> Iterator[Record]:
        """Its records, failed ones too, oldest first."""
        return (record for record in store if self.has(record.profile))


def publish(name: str, path: Path, store: RecordStore) -> Published:
    """Write what is known of a board as one file, signed with this host's key.

    Args:
        name: of a device, whose own records are taken; or of a board, for all records of it.
        path: of the file.
        store: of the records.

    Raises:
        UserError: nothing is on record of it, or nothing has this name.
        DeviceError: the device does not answer.
        EdgeError: the records cannot be read.
        DeviceFull: no space left.
    """
    from host.packs import write_pack

    subject = _device(name) if _is_device(name) else _Subject(name, None, _newest_calibration(name))
    if next(subject.records_of(store), None) is None:
        raise UserError(
            f"nothing is on record of {name}, which is {'a device' if subject.profile else 'no device'} here:"
            " sdk devices list and sdk records list show what there is"
        )
    from host.tlm.model.sharing import tuned_models

    models = [(one.belongs, one.card, one.weights) for one in tuned_models(subject.has)]
    manifest, signature = write_pack(
        path, subject.board, subject.records_of(store), subject.calibration, models
    )
    calibrated = subject.calibration is not None
    return Published(
        subject.board, manifest.records, calibrated, len(models), signature.signer, signature.key
    )


def pull(path: Path, store: RecordStore, trusted: TrustedKeys) -> Pulled:
    """Add what a pack holds, all or nothing; what is there already is not added again.

    Args:
        path: of the pack.
        store: to add to.
        trusted: keys whose packs are taken, and what was revoked.

    Raises:
        UserError: there is no such file.
        EdgeError: the pack is damaged or changed, or its signer is not trusted; nothing is added.
        DeviceFull: no space left.
    """
    from host.calibration.foreign import calibration_path_of_machine, pulled_calibration
    from host.files import writing
    from host.packs import open_pack

    found = 0
    with ExitStack() as ending:
        pack = ending.enter_context(open_pack(path, trusted))

        def counted() -> Iterator[Record]:
            nonlocal found
            for record in pack.records():
                found += 1
                yield record

        models, notes = _checked_models(
            pack, Path(ending.enter_context(TemporaryDirectory(prefix="edgetlm-")))
        )
        calibrated: bool | None = None
        if pack.calibration is None:
            new = store.append(counted())
        else:
            place = calibration_path_of_machine(pack.calibration.machine)
            with writing(place), pulled_calibration(pack.calibration, pack.origin.data()) as calibrated:
                new = store.append(counted())
        taken = 0
        for model in models:
            from host.tlm.model.sharing import keep

            taken += keep(model, pack.origin.data())
        refused = str(pack.refused)
        return Pulled(pack.manifest.board, pack.origin, new, found, calibrated, refused, taken, notes)


def _checked_models(pack: PackReader, folder: Path) -> tuple[list[CheckedModel], tuple[str, ...]]:
    """The fine-tuned models of a pack that can be used here, and why the others cannot.

    Raises:
        EdgeError: one is damaged, or of another board.
    """
    from host.files import writing

    models: list[CheckedModel] = []
    notes: list[str] = []
    for number, files in enumerate(pack.models):
        from host.tlm.model.sharing import TunedModel, checked

        try:
            with writing(folder):
                found = checked(TunedModel(*files), pack.manifest.board, folder / str(number))
        except ValueError as error:
            raise pack.refusal(str(error)) from error
        if isinstance(found, str):
            notes.append(found)
        else:
            models.append(found)
    return models, tuple(notes)


def _is_device(name: str) -> bool:
    from host.devices import Registry

    return name == "local" or ":" in name or name in Registry().entries()


def _device(name: str) -> _Subject:
    from host.calibration import board_of, load, machine_hash
    from host.compile.device_profile import profile_of
    from host.records import profile_data
    from host.transport import connect
    from sdk.management.records import without_threads

    with connect(name) as device:
        profile = without_threads(profile_data(profile_of(device, 1)))
        description = device.describe()
        known = load(device.name)
        board = board_of(description, device.name)
    applies = known is not None and known.machine == machine_hash(description, board)
    return _Subject(str(profile["board"]), profile, known if applies else None)


def _newest_calibration(board: str) -> Calibration | None:
    """The last calibration of a device of this board."""
    from host.calibration import load
    from host.devices import Registry

    every = [load(name) for name in ("local", *Registry().entries())]
    ours = [one for one in every if one is not None and one.board == board]
    return max(ours, key=lambda one: one.date, default=None)
