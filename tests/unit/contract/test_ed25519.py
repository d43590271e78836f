"""Ed25519 against RFC 8032's own examples and against the library that hosts sign with."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.contract import ed25519

# RFC 8032, section 7.1: public key, message, signature.
EXAMPLES = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()


@pytest.mark.parametrize(("key", "message", "signature"), EXAMPLES)
def test_examples_of_the_standard(key: str, message: str, signature: str) -> None:
    arguments = [bytes.fromhex(text) for text in (key, message, signature)]
    assert ed25519.verify(*arguments)
    assert not ed25519.verify(arguments[0], arguments[1] + b"x", arguments[2])


@given(st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_what_the_library_signs_is_accepted(message: bytes) -> None:
    assert ed25519.verify(PUBLIC, message, KEY.sign(message))


@given(st.integers(0, 511), st.sampled_from(["key", "signature"]))
@settings(max_examples=60, deadline=None)
def test_no_bit_can_be_changed(bit: int, what: str) -> None:
    changed = {"key": bytearray(PUBLIC), "signature": bytearray(KEY.sign(b"message"))}
    changed[what][bit // 8 % len(changed[what])] ^= 1 << bit % 8
    assert not ed25519.verify(bytes(changed["key"]), b"message", bytes(changed["signature"]))


def test_a_scalar_has_one_form() -> None:
    signature = KEY.sign(b"message")
    order = (1 << 252) + 27742317777372353535851937790883648493
    scalar = int.from_bytes(signature[32:], "little") + order
    assert not ed25519.verify(PUBLIC, b"message", signature[:32] + scalar.to_bytes(32, "little"))


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), b"\xff" * 32, b"\x02" + bytes(31)])
def test_what_is_no_key_verifies_nothing(key: bytes) -> None:
    assert not ed25519.verify(key, b"message", KEY.sign(b"message"))
