"""This host's key: with it every bundle is signed that is made here.

    KEYS/host.pem   an Ed25519 private key (PKCS 8), readable by its user only; made when it is first needed

KEYS is `$EDGETLM_KEYS`, else `keys` below the user's configuration.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from device_agent.contract.signing import NAME_CHARACTERS, BundleSignature, signed_message
from device_agent.contract.text import printable
from host.errors import UserError
from host.places import config_root, user_name

if TYPE_CHECKING:
    from collections.abc import Callable

_FILE = "host.pem"
_LIMIT_BYTES = 1 << 14


@dataclass(frozen=True)
class HostKey:
    """A key that bundles are signed with.

    Attributes:
        name: of its owner: user@machine.
        public: the public key in hexadecimal, which names it everywhere.
    """

    name: str
    public: str
    _sign: Callable[[bytes], bytes] = field(repr=False, compare=False)

    def sign(self, manifest: bytes) -> BundleSignature:
        """The signature of a bundle's manifest."""
        signature = self._sign(signed_message(manifest, self.name))
        return BundleSignature(self.name, self.public, signature.hex())


def host_key(folder: Path | None = None) -> HostKey:
    """This host's key, which is made where there is none.

    Args:
        folder: where it lies; the user's own by default.

    Raises:
        UserError: the file is damaged, others can read it, or it cannot be made.
    """
    path = (folder or keys_folder()) / _FILE
    try:
        if not path.exists():
            _make(path)
        status = path.stat()
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise UserError(f"{path} can be read by others: chown it to its user and chmod 600, or remove it")
        if status.st_size > _LIMIT_BYTES:
            raise ValueError("too long")
        private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError("another kind of key")
    except OSError as error:
        raise UserError(
            f"the key {path} cannot be made or read: {error.strerror}; set EDGETLM_KEYS to a folder of yours"
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(
            f"{path} is no Ed25519 key ({printable(error, 100)}): remove it, and the next command makes"
            " another"
        ) from error
    return HostKey(owner_name(), private.public_key().public_bytes_raw().hex(), private.sign)


def keys_folder() -> Path:
    """The folder of this host's key."""
    own = os.environ.get("EDGETLM_KEYS", "")
    return Path(own) if own else config_root() / "keys"


def owner_name() -> str:
    """The name under which this host signs: user@machine."""
    return printable(f"{user_name()}@{socket.gethostname()}", NAME_CHARACTERS)


def _make(path: Path) -> None:
    """Write a new key unless another process has written one meanwhile."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # A link, not a rename: the first of two processes wins, and both go on with its key.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(partial)
    finally:
        partial.unlink()
