"""A temporary folder for a new bundle, which is renamed to its place or removed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType

from device_agent.contract.manifest import MANIFEST
from host import bundle
from host.deploy.folders import make_folders, remove_empty
from host.errors import EdgeError
from host.files import check_output_bundle, writing
from host.manifest import Manifest

# Commands that write one destination at the same moment are few.
_ATTEMPTS = 20
# In the scratch folder, what lay at the destination before.
_OLD = "old-"


@dataclass(frozen=True)
class ReplacedBundle:
    """The bundle that was in the same place before.

    Attributes:
        manifest: of the bundle; None where it cannot be read.
        bundle_bytes: of the files that the device runs.
        reason: why it cannot be read; "" where it can.
    """

    manifest: Manifest | None
    bundle_bytes: int = 0
    reason: str = ""


class Staging:
    """Scratch folder beside a bundle's destination, on the same disk so that a rename is enough.

    Args:
        destination: of the bundle: a directory, or a file if it ends in `.zip`.
        option: with which the user names another destination.

    Raises:
        UserError: the destination has something other than a bundle, or cannot be written.
        DeviceFull: no space left.
    """

    def __init__(self, destination: Path, option: str = "--bundle") -> None:
        self.destination = destination.absolute()
        # No number of the process: in a container, the next one has the number of one that was killed.
        self.folder = self.destination.with_name(f".{self.destination.name}.{secrets.token_hex(4)}.part")
        self._made: tuple[Path, ...] = ()
        self._lock: int | None = None
        check_output_bundle(self.destination, option)

    def __enter__(self) -> Staging:
        with writing(self.folder):
            self._made = make_folders(self.folder)
            self._lock = _locked(self.folder)
        self._remove_left()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also between the two names of `commit` an interruption may come.
        self._remove(self.folder)
        remove_empty(self._made[1:])
        if self._lock is not None:
            os.close(self._lock)

    def _remove_left(self) -> None:
        """Remove what commands of this destination left that were killed; a bundle is put back from there."""
        begin, end = f".{self.destination.name}.", ".part"
        for left in self.destination.parent.glob(f"{glob.escape(begin)}*{end}"):
            if "." in left.name.removeprefix(begin).removesuffix(end):
                continue  # of another destination, whose name begins with this one's
            try:
                lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue  # another command has removed it, or it is none
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._remove(left)
            except OSError:
                continue  # its command works, or the file system has no locks
            finally:
                os.close(lock)

    def _remove(self, folder: Path) -> None:
        """Remove a scratch folder; the newest bundle of it is put back where there is none any more."""
        with contextlib.suppress(OSError):  # what cannot be put back stays for the next command
            for old in sorted(folder.glob(_OLD + "*"), reverse=True):
                if not os.path.lexists(self.destination):
                    old.rename(self.destination)
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def is_archive(self) -> bool:
        """Whether the destination is a zip."""
        return self.destination.suffix == ".zip"

    def path(self, name: str) -> Path:
        """A path inside the scratch folder."""
        return self.folder / name

    def prepare(self, directory: Path) -> Path:
        """Make the final form of a bundle directory inside the scratch folder.

        Raises:
            DeviceFull: no space left.
        """
        if not self.is_archive:
            return directory
        archive = self.path("bundle.zip")
        bundle.pack(directory, archive)
        return archive

    def replaced(self) -> ReplacedBundle | None:
        """The bundle at the destination, which `commit` replaces; None if there is none."""
        place = self.destination
        if not (place.is_file() if self.is_archive else (place / MANIFEST).is_file()):
            return None
        try:
            manifest = bundle.load(place) if self.is_archive else bundle.read_manifest(place)
            return ReplacedBundle(manifest, bundle.runnable_bytes(place))
        except EdgeError as error:
            return ReplacedBundle(None, reason=str(error))

    def commit(self, prepared: Path) -> None:
        """Move the result of `prepare` to the destination; an older bundle there is replaced.

        Of several commands that write the same destination, the last one's bundle stays, whole.
        """
        if self.is_archive:
            prepared.replace(self.destination)
            return
        for attempt in count():
            old = self.path(f"{_OLD}{attempt:02}")
            with contextlib.suppress(FileNotFoundError):
                self.destination.rename(old)
            try:
                prepared.rename(self.destination)
                return
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and attempt < _ATTEMPTS:
                    # Another command has put its own there meanwhile.
                    continue
                if old.exists():
                    old.rename(self.destination)
                raise


def _locked(folder: Path) -> int | None:
    """A lock on a scratch folder, which ends with this process; None where the file system has no locks."""
    while True:
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            # Before it was locked, another command took it for one that was left.
            folder.mkdir(exist_ok=True)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return lock
        except OSError:
            os.close(lock)
            return None
        os.close(lock)
