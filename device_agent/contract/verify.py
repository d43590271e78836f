"""A bundle's directory against its manifest: every byte that is going to be used, and nothing beside it.

Files are read whole only once: which of them had been checked is remembered by device, inode, size and the
times of the last change of content and of status, which no program can set back, and until the next boot. A
change that the file system does not know of (a bit that turns on the disk) is found at the first load after a
boot.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import (
    MANIFEST,
    SIGNATURE,
    CheckedManifest,
    ContractError,
    FileEntry,
    check_manifest,
)
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.signing import BundleSignature, check_signature, parse_signature
from device_agent.contract.text import printable
from device_agent.contract.trust import TrustedKeys

TRUST_LEVELS = ("signed", "unsigned")
_CHUNK_BYTES = 1 << 20
_BOOT = "/proc/sys/kernel/random/boot_id"
_BOUNDS = LIMITS.bundle
_MEMORY_SCHEMA, _SETTLED_S = PROTOCOL.bundle.verified_schema, PROTOCOL.bundle.settled_s


class VerifiedBundle(NamedTuple):
    """A bundle whose files agree with its manifest.

    Attributes:
        directory: where it lies.
        version: the SHA-256 of its manifest, which is its identity.
        manifest: checked.
        signature: checked; None where it has none.
    """

    directory: str
    version: str
    manifest: CheckedManifest
    signature: Optional[BundleSignature]


def verify_directory(directory: str, memory: Optional["VerifiedFiles"] = None) -> VerifiedBundle:
    """Check a bundle's manifest, signature and files; whose signature it is, is for `check_trust`.

    Args:
        directory: of the bundle.
        memory: what was checked before; None reads every file.

    Raises:
        ContractError: something is missing, too much, or not what it should be.
        FileNotFoundError: there is no such directory, or no manifest in it.
    """
    data = read_bounded(os.path.join(directory, MANIFEST), LIMITS.bundle.manifest_bytes)
    manifest = check_manifest(data)
    signature = _signature_of(directory, data)
    expected = {MANIFEST, *manifest.files}
    if signature is not None:
        expected.add(SIGNATURE)
    with os.scandir(directory) as entries:
        found = {entry.name for entry in entries}
    for name in sorted(expected - found):
        raise ContractError("it lacks %s: copy or make the bundle again" % name)
    for name in sorted(found - expected):
        raise ContractError("it holds %s, which its manifest does not name: remove it" % printable(name))
    version = hashlib.sha256(data).hexdigest()
    began_s = time.time()
    stamps = {name: _check_size(directory, name, entry) for name, entry in manifest.files.items()}
    if memory is None or not memory.knows(version, stamps):
        for name, entry in manifest.files.items():
            check_file(os.path.join(directory, name), name, entry)
        # Of the files as they were before they were read: a change meanwhile is noticed next time. One that
        # follows another within the resolution of the file system's times is not: young files are not kept.
        if memory is not None and all(stamp[-1] / 1e9 + _SETTLED_S < began_s for stamp in stamps.values()):
            memory.remember(version, stamps)
    return VerifiedBundle(directory, version, manifest, signature)


def check_trust(bundle: VerifiedBundle, trusted: TrustedKeys, level: str) -> Optional[str]:
    """See that a verified bundle may be used.

    Args:
        bundle: verified.
        trusted: keys and revocations of the device.
        level: "signed": by a trusted key; "unsigned": by any key or none, but for what was revoked.

    Returns:
        A line of warning where it is used without a trusted signature, else None.

    Raises:
        ContractError: it may not be used; says what to type.
    """
    if level not in TRUST_LEVELS:
        raise ContractError("trust is one of %s, not %s" % (", ".join(TRUST_LEVELS), printable(level)))
    trusted.check_not_revoked(bundle.version, bundle.signature)
    try:
        trusted.check(bundle.version, bundle.signature)
    except ContractError:
        if level == "signed":
            raise
        who = "nobody" if bundle.signature is None else printable(bundle.signature.signer)
        return "the bundle %s, signed by %s, is loaded without trust in its signer" % (bundle.directory, who)
    return None


def check_file(path: str, name: str, entry: FileEntry) -> None:
    """See that a file has the size and the SHA-256 of its entry.

    Raises:
        ContractError: it has not.
    """
    hasher = hashlib.sha256()
    size = 0
    for chunk in _chunks(path):
        size += len(chunk)
        if size > entry.size:
            break
        hasher.update(chunk)
    if size != entry.size or hasher.hexdigest() != entry.sha256:
        raise ContractError(
            "%s does not match the hash in the manifest: copy or make the bundle again" % name
        )


def read_bounded(path: str, most: int) -> bytes:
    """The content of a regular file of at most so many bytes.

    Raises:
        ContractError: it is longer, no regular file, or cannot be read.
        FileNotFoundError: there is none.
    """
    name = os.path.basename(path)
    try:
        with _regular(path) as descriptor:
            data = b""
            while len(data) <= most:
                piece = os.read(descriptor, most + 1 - len(data))
                if not piece:
                    return data
                data += piece
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ContractError("%s cannot be read: %s" % (name, error.strerror)) from error
    raise ContractError("%s has more than %d bytes" % (name, most))


class VerifiedFiles:
    """Which bundles' files were checked since the last boot.

    Args:
        folder: private to this user, where they are remembered; what cannot be remembered is checked again.
        boot: names the boot; for tests.
    """

    def __init__(self, folder: str, boot: Optional[Callable[[], str]] = None) -> None:
        self._folder = folder
        self._boot = boot or _boot_id

    def knows(self, version: str, stamps: Dict[str, List[int]]) -> bool:
        """Whether files with these stamps were found to be those of a bundle."""
        try:
            with _regular(os.path.join(self._folder, version)) as descriptor:
                if os.fstat(descriptor).st_uid != os.geteuid():
                    return False
                data = os.read(descriptor, _BOUNDS.verified_bytes)
            known = strict_json.parse(data, _BOUNDS.verified_bytes)
        except (OSError, ValueError, ContractError):
            return False
        boot = self._boot()
        return bool(boot) and known == {"schema": _MEMORY_SCHEMA, "boot": boot, "files": stamps}

    def remember(self, version: str, stamps: Dict[str, List[int]]) -> None:
        """Keep what was found; a folder that cannot be written to keeps nothing."""
        fields = {"schema": _MEMORY_SCHEMA, "boot": self._boot(), "files": stamps}
        temporary = os.path.join(self._folder, ".%s.%s" % (version, secrets.token_hex(4)))
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            if os.stat(self._folder).st_uid != os.geteuid():
                return
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(fields, file)
            os.replace(temporary, os.path.join(self._folder, version))
            self._forget_old()

    def _forget_old(self) -> None:
        entries = sorted(os.scandir(self._folder), key=lambda entry: entry.stat().st_mtime_ns)
        for entry in entries[: -_BOUNDS.verified_files]:
            os.unlink(entry.path)


def _boot_id() -> str:
    try:
        with open(_BOOT, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""  # nothing is remembered then


def _signature_of(directory: str, manifest: bytes) -> Optional[BundleSignature]:
    try:
        data = read_bounded(os.path.join(directory, SIGNATURE), LIMITS.bundle.signature_bytes)
    except FileNotFoundError:
        return None
    signature = parse_signature(data)
    check_signature(manifest, signature)
    return signature


def _check_size(directory: str, name: str, entry: FileEntry) -> List[int]:
    """The identity of a file's content (device, inode, size, times of change), after a check of its size."""
    status = os.lstat(os.path.join(directory, name))
    if not stat.S_ISREG(status.st_mode):
        raise ContractError("%s is not a regular file: copy or make the bundle again" % name)
    if status.st_size != entry.size:
        raise ContractError(
            "%s does not match the hash in the manifest (%d bytes, not %d): copy or make the bundle again"
            % (name, status.st_size, entry.size)
        )
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


@contextlib.contextmanager
def _regular(path: str) -> Iterator[int]:
    """An open regular file: no symbolic link, no pipe that never ends, no device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ContractError("%s is not a regular file" % printable(os.path.basename(path)))
        yield descriptor
    finally:
        os.close(descriptor)


def _chunks(path: str) -> Iterator[bytes]:
    try:
        with _regular(path) as descriptor:
            while True:
                chunk = os.read(descriptor, _CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk
    except OSError as error:
        raise ContractError("%s cannot be read: %s" % (os.path.basename(path), error.strerror)) from error
