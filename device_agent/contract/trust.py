"""Whose bundles a device runs: a file of public keys that its user trusts, and of what was revoked.

    {"schema": "edgetlm.trust/1",
     "keys":    [{"key": 64 hexadecimal digits, "name": text, "since": date}, ...],
     "revoked": [{"identity": a key or the version of a bundle, "name": text, "since": date}, ...]}

The file lies beside the bundles that it is about, and only its user may write to it. What was revoked is
refused whatever else is asked for; a key until it is trusted again by name, a version for good.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import ContractError
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.signing import NAME_CHARACTERS, BundleSignature, is_key, is_signer, short
from device_agent.contract.text import printable

SCHEMA = PROTOCOL.bundle.trust_schema
FILE = PROTOCOL.bundle.trust
_DATE = "%Y-%m-%d"
_LEAST_DIGITS = 8


class TrustedKey(NamedTuple):
    """A key whose bundles run.

    Attributes:
        key: public key in hexadecimal.
        name: of its owner, as the user knows it.
        since: date.
    """

    key: str
    name: str
    since: str


class Revocation(NamedTuple):
    """A revoked key or version, which is refused.

    Attributes:
        identity: a public key, or the version of a bundle, in hexadecimal.
        name: as it was known.
        since: date.
    """

    identity: str
    name: str
    since: str


class TrustedKeys(NamedTuple):
    """The content of the file.

    Attributes:
        keys: that are trusted.
        revoked: what is refused.
    """

    keys: Tuple[TrustedKey, ...] = ()
    revoked: Tuple[Revocation, ...] = ()

    def check(self, version: str, signature: Optional[BundleSignature]) -> None:
        """See that a bundle may be used, whose signature has been checked.

        Args:
            version: the SHA-256 of its manifest.
            signature: None where it has none.

        Raises:
            ContractError: it is not signed, by nobody who is trusted, or was revoked; says what to type.
        """
        self.check_not_revoked(version, signature)
        if signature is None:
            raise ContractError(
                "it is not signed; if you know where it comes from, load it with trust='unsigned'"
                " (sdk: --trust unsigned)"
            )
        if all(one.key != signature.key for one in self.keys):
            raise ContractError(
                "it is signed by %s (key %s), who is not trusted here; if you know them: sdk keys trust %s"
                " --name NAME, or load it with trust='unsigned' (sdk: --trust unsigned)"
                % (printable(signature.signer), short(signature.key), signature.key)
            )

    def check_not_revoked(self, version: str, signature: Optional[BundleSignature]) -> None:
        """See that neither a bundle nor its signer was revoked.

        Raises:
            ContractError: one of them was.
        """
        for one in self.revoked:
            if one.identity == version:
                raise ContractError("version %s was revoked on %s" % (short(version), one.since))
            if signature is not None and one.identity == signature.key:
                raise ContractError(
                    "it is signed by %s (key %s), whose key was revoked on %s"
                    % (printable(one.name), short(one.identity), one.since)
                )


class TrustStore:
    """The file.

    Args:
        path: where it lies; nothing is trusted where there is none.
        clock: the date of what is written; for tests.
    """

    def __init__(self, path: str, clock: Callable[[], str] = lambda: time.strftime(_DATE)) -> None:
        self.path = path
        self._clock = clock

    def read(self) -> TrustedKeys:
        """The content of the file.

        Raises:
            ContractError: it is damaged, or others than its user may write to it.
        """
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                data = file.read(LIMITS.bundle.trust_bytes + 1)
        except FileNotFoundError:
            return TrustedKeys()
        except OSError as error:
            raise ContractError("%s cannot be read: %s" % (self.path, error.strerror)) from error
        if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o022:
            raise ContractError(
                "%s can be written to by others: chown it to its user and chmod 600" % self.path
            )
        try:
            return _parsed(data)
        except (ValueError, KeyError, TypeError) as error:
            raise ContractError(
                "%s is damaged (%s): remove it and add the hosts again" % (self.path, printable(error, 100))
            ) from error

    def enrol(self, key: str, name: str) -> bool:
        """Trust a key unless it is known or was revoked; returns whether it is trusted now.

        Raises:
            ContractError: it is no key, or the file cannot be used.
        """
        with self._changing() as (found, write):
            if any(one.identity == key for one in found.revoked):
                return False
            if all(one.key != key for one in found.keys):
                write(found._replace(keys=(*found.keys, self._trusted(key, name))))
            return True

    def trust(self, key: str, name: str) -> None:
        """Trust a key, whatever was revoked before.

        Raises:
            ContractError: it is no key, or the file cannot be used.
        """
        with self._changing() as (found, write):
            revoked = tuple(one for one in found.revoked if one.identity != key)
            others = tuple(one for one in found.keys if one.key != key)
            write(TrustedKeys((*others, self._trusted(key, name)), revoked))

    def revoke(self, wanted: str) -> Revocation:
        """Refuse a key, or the version of a bundle, from now on.

        Args:
            wanted: name of a trusted key, or at least the first 8 digits of one, or a whole key or version.

        Raises:
            ContractError: nothing or several things are called so, or the file cannot be used.
        """
        with self._changing() as (found, write):
            matching = [one for one in found.keys if wanted == one.name or _begins(one.key, wanted)]
            if len(matching) > 1:
                raise ContractError("%s names several keys: give more digits" % printable(wanted))
            if matching:
                identity, name = matching[0].key, matching[0].name
            elif is_key(wanted):
                identity, name = wanted, short(wanted)
            else:
                raise ContractError("no trusted key is called %s: see sdk keys list" % printable(wanted))
            revocation = Revocation(identity, name, self._clock())
            kept = tuple(one for one in found.revoked if one.identity != identity)
            write(TrustedKeys(tuple(one for one in found.keys if one.key != identity), (*kept, revocation)))
            return revocation

    def _trusted(self, key: str, name: str) -> TrustedKey:
        if not is_key(key):
            raise ContractError("%s is no public key: it has 64 hexadecimal digits" % printable(key, 80))
        if not is_signer(name):
            raise ContractError(
                "%s is no name for a key: give 1 to %d characters" % (printable(name), NAME_CHARACTERS)
            )
        return TrustedKey(key, name, self._clock())

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Tuple[TrustedKeys, Callable[[TrustedKeys], None]]]:
        """The content of the file and a function that replaces it, while no other process changes it."""
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            descriptor = os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ContractError("%s cannot be changed: %s" % (self.path, error.strerror)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self.read(), self._write
        finally:
            os.close(descriptor)

    def _write(self, content: TrustedKeys) -> None:
        if len(content.keys) + len(content.revoked) > LIMITS.bundle.trust_entries:
            raise ContractError("%s is full: revoke or remove keys" % self.path)
        fields = {
            "schema": SCHEMA,
            "keys": [one._asdict() for one in content.keys],
            "revoked": [one._asdict() for one in content.revoked],
        }
        temporary = "%s.%s" % (self.path, secrets.token_hex(4))
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(fields, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise ContractError("%s cannot be written: %s" % (self.path, error.strerror)) from error


def trusted_keys(keys: Any, revoked: Any) -> TrustedKeys:
    """The two lists of the file, checked.

    Raises:
        ContractError: one of them is not as it must be.
    """
    return TrustedKeys(
        tuple(TrustedKey(*_entry(one, "key")) for one in _entries(keys)),
        tuple(Revocation(*_entry(one, "identity")) for one in _entries(revoked)),
    )


def _begins(key: str, digits: str) -> bool:
    return len(digits) >= _LEAST_DIGITS and key.startswith(digits)


def _parsed(data: bytes) -> TrustedKeys:
    fields = strict_json.parse(data, LIMITS.bundle.trust_bytes, FILE)
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        raise ContractError("not of the schema %s" % SCHEMA)
    return trusted_keys(fields["keys"], fields["revoked"])


def _entries(value: Any) -> List[Any]:
    if not isinstance(value, list) or len(value) > LIMITS.bundle.trust_entries:
        raise ContractError("a list is none, or too long")
    return value


def _entry(fields: Any, first: str) -> Tuple[str, str, str]:
    if not isinstance(fields, dict):
        raise ContractError("an entry is not an object")
    identity, name, since = fields.get(first), fields.get("name"), fields.get("since")
    if not is_key(identity) or not is_signer(name) or not is_signer(since):
        raise ContractError("an entry is not of a key")
    return str(identity), str(name), str(since)
