"""`manifest.sig`: who vouches for a bundle.

    {"schema": "edgetlm.signature/1", "signer": "alice@laptop",
     "key": 64 hexadecimal digits of an Ed25519 public key, "signature": 128 hexadecimal digits}

What is signed is this schema, the SHA-256 of `manifest.json`, and the signer's name, so that none of them can
be exchanged. A key is named by itself; people see its first 16 digits.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from device_agent.contract import ed25519, strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import SIGNATURE, ContractError
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.text import is_printable

SCHEMA = PROTOCOL.bundle.signature_schema
NAME_CHARACTERS = LIMITS.bundle.signer_characters
_KEY = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_SHORT = 16


class BundleSignature(NamedTuple):
    """A signature as it lies in a bundle.

    Attributes:
        signer: what the signer calls itself.
        key: its public key in hexadecimal.
        signature: in hexadecimal.
    """

    signer: str
    key: str
    signature: str

    def fields(self) -> "dict[str, str]":
        """The content of the file."""
        return dict(self._asdict(), schema=SCHEMA)


def is_key(text: object) -> bool:
    """Whether a text is a public key in hexadecimal."""
    return isinstance(text, str) and bool(_KEY.fullmatch(text))


def is_signer(text: object) -> bool:
    """Whether a text can name a signer."""
    return isinstance(text, str) and 0 < len(text) <= NAME_CHARACTERS and is_printable(text)


def short(key: str) -> str:
    """A key or a version as people see it."""
    return key[:_SHORT]


def signed_message(manifest: bytes, signer: str) -> bytes:
    """The bytes that are signed: schema, SHA-256 of the manifest, and the signer's name."""
    return SCHEMA.encode() + b"\0" + hashlib.sha256(manifest).digest() + signer.encode("utf-8")


def parse_signature(data: bytes) -> BundleSignature:
    """The content of `manifest.sig`.

    Raises:
        ContractError: it is no signature of this schema.
    """
    try:
        fields = strict_json.parse(data, LIMITS.bundle.signature_bytes, SIGNATURE)
    except ValueError as error:
        raise ContractError(str(error)) from error
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        raise ContractError("%s is not of the schema %s" % (SIGNATURE, SCHEMA))
    signer, key, signature = fields.get("signer"), fields.get("key"), fields.get("signature")
    if not is_signer(signer) or not is_key(key):
        raise ContractError("%s names no signer with a key" % SIGNATURE)
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise ContractError("%s holds no signature" % SIGNATURE)
    return BundleSignature(str(signer), str(key), signature)


def check_signature(manifest: bytes, signature: BundleSignature) -> None:
    """See that a signature is that of a manifest; whether the signer is trusted is another question.

    Raises:
        ContractError: it is not.
    """
    message = signed_message(manifest, signature.signer)
    if not ed25519.verify(bytes.fromhex(signature.key), message, bytes.fromhex(signature.signature)):
        raise ContractError("its signature is not that of its manifest: somebody changed one of them")
