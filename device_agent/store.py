"""Installed bundles, kept so that a power cut at any point leaves the old version or the new one.

    bundles/NAME/versions/HASH/...   a complete bundle; HASH is its content_hash
    bundles/NAME/active              symbolic link to the version in use: the one truth about it
    bundles/NAME/history.json        versions in the order of activation, for rollback; the last is active
    staging/...                      incomplete or removed things; emptied at start

A version appears by one rename, becomes active by one rename, and disappears by one rename. History is
written before the link is swapped when activating, and after it when rolling back, so that at every point
the active version is in it; what follows the active version is dropped at start.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from device_agent.files import full_disk, place
from device_agent.wire import CHUNK_BYTES, AgentError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")
_KEEP_VERSIONS = 3


def _refuse(message: str) -> AgentError:
    return AgentError("bundle", message)


def _no_checkpoint(_: str) -> None:
    pass


class BundleStore:
    """The bundles of one device; several processes may use one folder.

    Args:
        folder: created if need be.
        checkpoint: called with the name of each step of an installation after it was done.
    """

    def __init__(self, folder: str, checkpoint: Callable[[str], None] = _no_checkpoint) -> None:
        self._bundles = os.path.join(folder, "bundles")
        self._staging = os.path.join(folder, "staging")
        self._lock_path = os.path.join(folder, "lock")
        self._checkpoint = checkpoint
        for path in (self._bundles, self._staging):
            os.makedirs(path, exist_ok=True)
        with self._locked():
            self._recover()

    # -- what the host asks

    def install(self, name: str, files: Mapping[str, str], locate: Callable[[str], str]) -> str:
        """Installs a version, without activating it.

        Args:
            name: of the bundle.
            files: SHA-256 by file name, `manifest.json` among them.
            locate: path of the content with a hash.

        Returns:
            The version: the bundle's content hash.

        Raises:
            AgentError: the bundle is incomplete or damaged, or there is no space.
        """
        with self._locked():
            staged = os.path.join(self._staging, secrets.token_hex(8))
            try:
                self._stage(staged, files, locate)
                version = self._checked_version(staged, files)
                target = self._version_path(name, version)
                if not os.path.isdir(target):
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    self._checkpoint("checked")
                    os.rename(staged, target)
                    self._checkpoint("renamed")
                    _sync_folder(os.path.dirname(target))
                elif self._manifest_text(staged) != self._manifest_text(target):
                    # The same content with newer figures: only the manifest differs.
                    os.replace(os.path.join(staged, "manifest.json"), os.path.join(target, "manifest.json"))
                    _sync_folder(target)
            except OSError as error:
                raise full_disk(error, "bundle %s" % name) from error
            finally:
                shutil.rmtree(staged, ignore_errors=True)
            self._checkpoint("installed")
            return version

    def activate(self, name: str, version: str) -> None:
        """Makes an installed version the active one.

        Raises:
            AgentError: it is not installed.
        """
        with self._locked():
            if not os.path.isdir(self._version_path(name, version)):
                raise _refuse("version %s of %s is not installed" % (version[:12], name))
            history = [v for v in self._history(name) if v != version] + [version]
            self._write_history(name, history)
            self._checkpoint("history")
            self._link(name, version)
            self._prune(name, history)

    def rollback(self, name: str) -> str:
        """Makes the version active that was so before, and returns it.

        Raises:
            AgentError: there is no such bundle, or no earlier version.
        """
        with self._locked():
            self._need(name)
            history = self._history(name)
            if len(history) < 2:
                raise _refuse("%s has no earlier version to go back to" % name)
            self._link(name, history[-2])
            self._checkpoint("rolled back")
            self._write_history(name, history[:-1])
            return history[-2]

    def remove(self, name: str) -> None:
        """Removes a bundle with all its versions.

        Raises:
            AgentError: there is none.
        """
        with self._locked():
            self._need(name)
            self._discard(self._folder(name))

    def list(self) -> List[Dict[str, Any]]:
        """All versions of all bundles: `name`, `version`, `active`, `path`, `backend`, `manifest`."""
        with self._locked():
            names = [name for name in sorted(os.listdir(self._bundles)) if _NAME.match(name)]
            return [entry for name in names for entry in self._describe(name)]

    def active_path(self, name: str) -> str:
        """Folder of the active version.

        Raises:
            AgentError: no such bundle, or none of its versions is active.
        """
        with self._locked():
            self._need(name)
            version = self._active(name)
            if version is None:
                raise _refuse("no version of %s is active; activate one first" % name)
            return self._version_path(name, version)

    # -- steps

    def _stage(self, staged: str, files: Mapping[str, str], locate: Callable[[str], str]) -> None:
        os.mkdir(staged)
        for relative, digest in sorted(files.items()):
            if os.path.basename(relative) != relative or relative in ("", ".", ".."):
                raise _refuse("a bundle holds no file named %r" % relative)
            source = locate(digest)
            if not os.path.isfile(source):
                raise _refuse("%s was not sent; send it and install again" % relative)
            target = os.path.join(staged, relative)
            place(source, target)
            if _hash(target) != digest:
                with contextlib.suppress(OSError):
                    os.unlink(source)  # or it would count as sent
                raise _refuse("%s is damaged; send it and install again" % relative)
            _sync_file(target)
            self._checkpoint("staged %s" % relative)
        _sync_folder(staged)

    def _checked_version(self, staged: str, files: Mapping[str, str]) -> str:
        try:
            manifest = json.loads(self._manifest_text(staged))
            version, expected = str(manifest["content_hash"]), dict(manifest["files"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _refuse("the bundle has no valid manifest.json: %r; build it again" % error) from error
        if not re.match(r"[0-9a-f]{16,64}$", version):
            raise _refuse("the bundle's content_hash is no hash; build it again")
        for relative, digest in expected.items():
            if files.get(relative) != digest:
                raise _refuse(
                    "%s is missing or not what manifest.json says; build the bundle again" % relative
                )
        return version

    @staticmethod
    def _manifest_text(folder: str) -> bytes:
        with open(os.path.join(folder, "manifest.json"), "rb") as file:
            return file.read()

    def _link(self, name: str, version: str) -> None:
        temporary = os.path.join(self._folder(name), "active.next")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(os.path.join("versions", version), temporary)
        self._checkpoint("linked")
        os.replace(temporary, os.path.join(self._folder(name), "active"))
        self._checkpoint("swapped")
        _sync_folder(self._folder(name))

    def _prune(self, name: str, history: List[str]) -> None:
        keep = set(history[-_KEEP_VERSIONS:])
        folder = os.path.join(self._folder(name), "versions")
        removed = [version for version in os.listdir(folder) if version not in keep]
        if removed:
            self._write_history(name, history[-_KEEP_VERSIONS:])
        for version in removed:
            self._discard(os.path.join(folder, version))

    def _discard(self, path: str) -> None:
        # Gone at once, whatever happens while its files are deleted.
        doomed = os.path.join(self._staging, secrets.token_hex(8))
        os.rename(path, doomed)
        _sync_folder(os.path.dirname(path))
        self._checkpoint("discarded")
        shutil.rmtree(doomed, ignore_errors=True)

    # -- state

    def _recover(self) -> None:
        for entry in os.listdir(self._staging):
            shutil.rmtree(os.path.join(self._staging, entry), ignore_errors=True)
        for name in os.listdir(self._bundles):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder(name), "active.next"))
            history, active = self._history(name), self._active(name)
            usable = [
                v
                for v in history
                if os.path.isfile(os.path.join(self._version_path(name, v), "manifest.json"))
            ]
            if active is None and usable:
                continue  # installed before, never activated, or activation was interrupted
            if active is not None and active not in usable:
                # The active version lost its files: the one before it serves.
                if usable:
                    self._link(name, usable[-1])
                    self._write_history(name, usable)
                continue
            if active is not None:
                kept = usable[: usable.index(active) + 1]
                if kept != history:
                    self._write_history(name, kept)

    def _folder(self, name: str) -> str:
        if not _NAME.match(name):
            raise _refuse(
                "%r is no name for a bundle; use letters, digits, dot, dash and underscore" % name[:100]
            )
        return os.path.join(self._bundles, name)

    def _version_path(self, name: str, version: str) -> str:
        if not re.match(r"[0-9a-f]{16,64}$", version):
            raise _refuse("%r is no version of a bundle" % version[:80])
        return os.path.join(self._folder(name), "versions", version)

    def _need(self, name: str) -> None:
        if not os.path.isdir(self._folder(name)):
            raise _refuse("no bundle %s is installed on this device" % name)

    def _active(self, name: str) -> Optional[str]:
        try:
            return os.path.basename(os.readlink(os.path.join(self._folder(name), "active")))
        except OSError:
            return None

    def _history(self, name: str) -> List[str]:
        try:
            with open(os.path.join(self._folder(name), "history.json"), encoding="utf-8") as file:
                return [str(version) for version in json.load(file)]
        except (OSError, ValueError):
            active = self._active(name)
            return [active] if active else []

    def _write_history(self, name: str, history: List[str]) -> None:
        path = os.path.join(self._folder(name), "history.json")
        with open(path + ".next", "w", encoding="utf-8") as file:
            json.dump(history, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".next", path)
        _sync_folder(self._folder(name))

    def _describe(self, name: str) -> List[Dict[str, Any]]:
        active = self._active(name)
        folder = os.path.join(self._folder(name), "versions")
        versions = os.listdir(folder) if os.path.isdir(folder) else []
        history = self._history(name)
        # The last activated first, those never activated at the end.
        versions.sort(key=lambda v: -history.index(v) if v in history else 1)
        return [self._describe_version(name, version, version == active) for version in versions]

    def _describe_version(self, name: str, version: str, active: bool) -> Dict[str, Any]:
        path = self._version_path(name, version)
        try:
            manifest = json.loads(self._manifest_text(path))
        except (OSError, ValueError):
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


def _hash(path: str) -> str:
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
            hasher.update(chunk)
    return hasher.hexdigest()


def _sync_file(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
