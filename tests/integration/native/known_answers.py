"""Known answers of SHA-256 (FIPS 180-4 and its examples) and of Ed25519 (RFC 8032, section 7.1)."""

from __future__ import annotations

import hashlib

ORDER = (1 << 252) + 27742317777372353535851937790883648493
_PRIME = (1 << 255) - 19

# Digest and message.
DIGESTS = [
    (bytes.fromhex(digest), message)
    for digest, message in (
        ("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", b"abc"),
        ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", b""),
        (
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        ),
        ("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", b"a" * 1_000_000),
    )
]

# Public key, signature and message.
SIGNATURES = [
    (bytes.fromhex(key), bytes.fromhex(signature), message)
    for key, signature, message in (
        (
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25b"
            "f5f0595bbe24655141438e7a100b",
            b"",
        ),
        (
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b"
            "2eaeb4302aeeb00d291612bb0c00",
            b"\x72",
        ),
        (
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c"
            "15e9716ed28dc027beceea1ec40a",
            b"\xaf\x82",
        ),
        (
            "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
            "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca"
            "179c138ac17ad9bef1177331a704",
            hashlib.sha512(b"abc").digest(),
        ),
    )
]

# Encodings of points of a small order (1, 2, 4 and 8), and some that are not the one encoding of a point.
_EIGHTH = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc"
UNUSUAL_POINTS = [
    (1).to_bytes(32, "little"),
    (_PRIME - 1).to_bytes(32, "little"),
    bytes(32),
    bytes(31) + b"\x80",
    bytes.fromhex(_EIGHTH + "05"),
    bytes.fromhex(_EIGHTH + "85"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
    (1 | 1 << 255).to_bytes(32, "little"),
    _PRIME.to_bytes(32, "little"),
    (_PRIME + 1).to_bytes(32, "little"),
    ((1 << 255) - 1).to_bytes(32, "little"),
]


def digest_inputs() -> list[bytes]:
    """For the native reader of digests."""
    return [digest + message for digest, message in DIGESTS]


def signature_inputs() -> list[bytes]:
    """For the native reader of signatures."""
    return [b"".join(one) for one in SIGNATURES]
