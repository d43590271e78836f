"""Installed bundles. After a power cut at any point, either the old or the new version is in place.

    bundles/NAME/versions/HASH/...   a complete bundle; HASH is the SHA-256 of its manifest
    bundles/NAME/active              symbolic link to the version in use, the only record of it
    bundles/NAME/history.json        versions in the order of activation, for rollback; the last is active
    staging/...                      incomplete or removed files; emptied at the start
    trust.json                       signers whose bundles may be here (`device_agent.contract.trust`)

A version appears by one rename, becomes active by one rename, and disappears by one rename. Activating
writes the history before the link is swapped, and rolling back writes it afterwards, so that the history
contains the active version at every point. Versions after the active one are ignored and are dropped at the
next start.
Versions that compute the same and differ only in their figures are one step of the history.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import (
    MANIFEST,
    ContractError,
    FileEntry,
    check_manifest,
    content_digest,
    is_digest,
    is_name,
)
from device_agent.contract.text import printable
from device_agent.contract.trust import TrustStore
from device_agent.contract.verify import (
    VerifiedBundle,
    VerifiedFiles,
    check_file,
    check_trust,
    read_bounded,
    verify_directory,
)
from device_agent.errors import AgentError
from device_agent.store.opened_bundle import trust_file, verified_files
from device_agent.store.private_files import sync_folder
from device_agent.store.uploads import full_disk, place

_KEEP_VERSIONS = 3


def _refuse(message: str) -> AgentError:
    return AgentError("bundle", message)


def _no_checkpoint(_: str) -> None:
    pass


class BundleStore:
    """The bundles of one device. Several processes may use one folder.

    Args:
        folder: folder of the store; created if it does not exist.
        checkpoint: called with the name of each installation step after the step is done.
    """

    def __init__(self, folder: str, checkpoint: Callable[[str], None] = _no_checkpoint) -> None:
        self._bundles = os.path.join(folder, "bundles")
        self._staging = os.path.join(folder, "staging")
        self._lock_path = os.path.join(folder, "lock")
        self.trust = TrustStore(trust_file(folder))
        self._memory = verified_files(self.trust.path)
        self._checkpoint = checkpoint
        for path in (self._bundles, self._staging):
            os.makedirs(path, exist_ok=True)
        with self._locked():
            self._recover()

    # -- requests of the host

    def install(self, name: str, files: Mapping[str, str], locate: Callable[[str], str]) -> str:
        """Installs a version without activating it.

        Args:
            name: name of the bundle.
            files: SHA-256 by file name; includes `manifest.json` and `manifest.sig`.
            locate: gives the path of the content with a hash.

        Returns:
            The version, which is the SHA-256 of the manifest and thus identifies all files.

        Raises:
            AgentError: the bundle is incomplete, damaged, or not signed by a host that is trusted here, or
                there is no space.
        """
        with self._locked():
            staged = os.path.join(self._staging, secrets.token_hex(8))
            try:
                self._stage(staged, files, locate)
                version = self._checked(staged).version
                target = self._version_path(name, version)
                if not os.path.isdir(target):
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    self._checkpoint("checked")
                    os.rename(staged, target)
                    self._checkpoint("renamed")
                    sync_folder(os.path.dirname(target))
                else:
                    self._repair(staged, target)
            except OSError as error:
                raise full_disk(error, "bundle %s" % printable(name)) from error
            finally:
                shutil.rmtree(staged, ignore_errors=True)
            self._checkpoint("installed")
            return version

    def _repair(self, staged: str, target: str) -> None:
        """Keeps an installed version, or replaces it if its files have changed."""
        try:
            self._checked(target)
        except AgentError:
            self._discard(target)
            os.rename(staged, target)
            sync_folder(os.path.dirname(target))

    def activate(self, name: str, version: str) -> None:
        """Makes an installed version the active one.

        Raises:
            AgentError: the version is missing, damaged or no longer trusted, or there is no space.
        """
        with self._locked():
            path = self._version_path(name, version)
            if not os.path.isdir(path):
                raise _refuse(
                    "version %s of %s is not installed; another deployment of this name may have taken its "
                    "place: deploy again" % (version[:12], name)
                )
            content = content_digest(self._checked(path, self._memory).manifest.fields)
            # A version that computes the same with other figures is not a step to go back to.
            earlier = [v for v in self._reached(name) if v != version and self._content(name, v) != content]
            history = [*earlier, version]
            try:
                self._write_history(name, history)
                self._checkpoint("history")
                self._link(name, version)
            except OSError as error:
                raise full_disk(error, "activating %s" % name) from error
            self._after(lambda: self._prune(name, history))

    def rollback(self, name: str) -> str:
        """Makes the previous version active again and returns it.

        Raises:
            AgentError: there is no such bundle; there is no earlier version, or it is damaged or was revoked;
                or there is no space. The active version then stays active.
        """
        with self._locked():
            self._need(name)
            history = self._reached(name)
            if len(history) < 2:
                raise _refuse("%s has no earlier version to go back to" % name)
            try:
                self._checked(self._version_path(name, history[-2]), self._memory)
            except AgentError as error:
                raise _refuse(
                    "%s cannot go back to version %s: %s" % (name, history[-2][:12], error)
                ) from error
            try:
                self._link(name, history[-2])
            except OSError as error:
                raise full_disk(error, "going back to the earlier version of %s" % name) from error
            self._checkpoint("rolled back")
            # If this fails, the next start drops what follows the active version in the history.
            self._after(lambda: self._write_history(name, history[:-1]))
            return history[-2]

    @staticmethod
    def _after(tidy: Callable[[], None]) -> None:
        """Tidies up after a completed change. A full disk must not make the change fail."""
        with contextlib.suppress(OSError):
            tidy()

    def remove(self, name: str) -> None:
        """Removes a bundle with all its versions.

        Raises:
            AgentError: there is no such bundle.
        """
        with self._locked():
            self._need(name)
            self._discard(self._folder(name))

    def list(self) -> List[Dict[str, Any]]:
        """All versions of all bundles: `name`, `version`, `active`, `path`, `backend`, `manifest`.

        `earlier` is true of the version that a roll-back would make active.
        """
        with self._locked():
            names = [name for name in sorted(os.listdir(self._bundles)) if is_name(name)]
            return [entry for name in names for entry in self._describe(name)]

    def active_path(self, name: str) -> str:
        """The folder of the active version.

        Raises:
            AgentError: there is no such bundle, or none of its versions is active.
        """
        with self._locked():
            self._need(name)
            version = self._active(name)
            if version is None:
                raise _refuse("no version of %s is active; activate one first" % name)
            return self._version_path(name, version)

    # -- steps

    def _stage(self, staged: str, files: Mapping[str, str], locate: Callable[[str], str]) -> None:
        if len(files) > LIMITS.bundle.files + 2:
            raise _refuse("a bundle has at most %d files" % LIMITS.bundle.files)
        if MANIFEST not in files:
            raise _refuse("the bundle has no %s; build it again" % MANIFEST)
        os.mkdir(staged)
        for relative, digest in sorted(files.items()):
            if not is_name(relative):
                raise _refuse("a bundle holds no file named %s" % printable(repr(relative)))
            source = locate(digest)
            if not os.path.isfile(source):
                raise _refuse("%s was not sent; send it and install again" % relative)
            target = os.path.join(staged, relative)
            place(source, target)
            try:
                check_file(target, relative, FileEntry(os.path.getsize(target), digest))
            except ContractError as error:
                with contextlib.suppress(OSError):
                    os.unlink(source)  # a damaged file must not count as sent
                raise _refuse("%s is damaged; send it and install again" % relative) from error
            _sync_file(target)
            self._checkpoint("staged %s" % relative)
        sync_folder(staged)

    def _checked(self, folder: str, memory: Optional[VerifiedFiles] = None) -> VerifiedBundle:
        """Verifies all files of a bundle's folder and that its signer is trusted here."""
        try:
            bundle = verify_directory(folder, memory)
            check_trust(bundle, self.trust.read(), "signed")
        except (ContractError, FileNotFoundError) as error:
            raise _refuse("the bundle is refused: %s" % error) from error
        return bundle

    def _content(self, name: str, version: str) -> str:
        """The digest of what a version computes, or the version itself if its manifest cannot be read."""
        path = os.path.join(self._version_path(name, version), MANIFEST)
        try:
            return content_digest(check_manifest(read_bounded(path, LIMITS.bundle.manifest_bytes)).fields)
        except (ContractError, OSError):
            return version

    def _link(self, name: str, version: str) -> None:
        temporary = os.path.join(self._folder(name), "active.next")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(os.path.join("versions", version), temporary)
        self._checkpoint("linked")
        os.replace(temporary, os.path.join(self._folder(name), "active"))
        self._checkpoint("swapped")
        self._after(lambda: sync_folder(self._folder(name)))

    def _prune(self, name: str, history: List[str]) -> None:
        keep = set(history[-_KEEP_VERSIONS:])
        folder = os.path.join(self._folder(name), "versions")
        removed = [version for version in os.listdir(folder) if version not in keep]
        if removed:
            self._write_history(name, history[-_KEEP_VERSIONS:])
        for version in removed:
            self._discard(os.path.join(folder, version))

    def _discard(self, path: str) -> None:
        # The rename removes the folder at once, even if deleting its files is interrupted.
        doomed = os.path.join(self._staging, secrets.token_hex(8))
        os.rename(path, doomed)
        sync_folder(os.path.dirname(path))
        self._checkpoint("discarded")
        shutil.rmtree(doomed, ignore_errors=True)

    # -- state

    def _recover(self) -> None:
        for entry in os.listdir(self._staging):
            shutil.rmtree(os.path.join(self._staging, entry), ignore_errors=True)
        for name in filter(is_name, os.listdir(self._bundles)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(os.path.join(self._folder(name), "active.next"))
            history, active = self._history(name), self._active(name)
            usable = [
                v for v in history if os.path.isfile(os.path.join(self._version_path(name, v), MANIFEST))
            ]
            if active is None and usable:
                continue  # a version is installed, but none was activated, or the activation was interrupted
            if active is not None and active not in usable:
                # The active version has lost its files, so the version before it becomes active.
                if usable:
                    self._link(name, usable[-1])
                    self._write_history(name, usable)
                continue
            if active is not None:
                kept = usable[: usable.index(active) + 1]
                if kept != history:
                    self._write_history(name, kept)

    def _folder(self, name: str) -> str:
        if not is_name(name):
            raise _refuse(
                "%s is no name for a bundle; use letters, digits, dot, dash and underscore"
                % printable(repr(name), 100)
            )
        return os.path.join(self._bundles, name)

    def _version_path(self, name: str, version: str) -> str:
        if not is_digest(version):
            raise _refuse("%s is no version of a bundle" % printable(repr(version), 80))
        return os.path.join(self._folder(name), "versions", version)

    def _need(self, name: str) -> None:
        if not os.path.isdir(self._folder(name)):
            raise _refuse("no bundle %s is installed on this device; sdk bundles lists those that are" % name)

    def _active(self, name: str) -> Optional[str]:
        try:
            version = os.path.basename(os.readlink(os.path.join(self._folder(name), "active")))
        except OSError:
            return None
        return version if is_digest(version) else None

    def _history(self, name: str) -> List[str]:
        try:
            with open(os.path.join(self._folder(name), "history.json"), encoding="utf-8") as file:
                return [version for version in json.load(file) if is_digest(version)]
        except (OSError, ValueError, TypeError):
            active = self._active(name)
            return [active] if active else []

    def _reached(self, name: str) -> List[str]:
        """The history up to the active version, or all of it if no version is active."""
        history, active = self._history(name), self._active(name)
        return history[: history.index(active) + 1] if active in history else history

    def _write_history(self, name: str, history: List[str]) -> None:
        path = os.path.join(self._folder(name), "history.json")
        with open(path + ".next", "w", encoding="utf-8") as file:
            json.dump(history, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".next", path)
        sync_folder(self._folder(name))

    def _describe(self, name: str) -> List[Dict[str, Any]]:
        active = self._active(name)
        folder = os.path.join(self._folder(name), "versions")
        # Other entries of the folder are not versions.
        versions = [v for v in os.listdir(folder) if is_digest(v)] if os.path.isdir(folder) else []
        history = self._history(name)
        # The version activated last comes first; versions that were never activated come last.
        versions.sort(key=lambda v: -history.index(v) if v in history else 1)
        reached = self._reached(name)
        earlier = reached[-2] if active is not None and len(reached) > 1 else None
        return [
            dict(self._describe_version(name, version, version == active), earlier=version == earlier)
            for version in versions
        ]

    def _describe_version(self, name: str, version: str, active: bool) -> Dict[str, Any]:
        path = self._version_path(name, version)
        try:
            data = read_bounded(os.path.join(path, MANIFEST), LIMITS.bundle.manifest_bytes)
            manifest = check_manifest(data).fields
        except (OSError, ContractError):
            manifest = {}
        return {
            "name": name,
            "version": version,
            "active": active,
            "path": path,
            "backend": manifest.get("backend", "damaged"),
            "manifest": manifest,
        }

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._lock_path, "a", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _sync_file(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
