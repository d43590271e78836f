"""Whether an SSH server is the one that the user knows."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import hmac
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import paramiko

from host.errors import DeviceError
from host.ssh.endpoint import Endpoint

_HASHED = "|1|"
# RSA keys sign by several algorithms; the key itself has one type.
_RSA_ALGORITHMS = ("rsa-sha2-512", "rsa-sha2-256")


@dataclass(frozen=True)
class KnownKey:
    """A line of a file of known hosts that is about this server.

    Attributes:
        kind: "ssh-ed25519" and the like.
        content: the key itself, in base64.
        revoked: it must not be accepted any more.
        place: file and line, for a message.
    """

    kind: str
    content: str
    revoked: bool
    place: str


def known_keys(endpoint: Endpoint) -> list[KnownKey]:
    """The keys of a server in the user's files of known hosts."""
    return list(_known(endpoint))


def prefer_known(transport: paramiko.Transport, known: list[KnownKey]) -> None:
    """Ask the server for a key of a type that is known, as it may have several."""
    kinds = {key.kind for key in known if not key.revoked}
    if "ssh-rsa" in kinds:
        kinds |= set(_RSA_ALGORITHMS)
    options = transport.get_security_options()
    # Stable: among known ones, and among the others, paramiko's order of preference stays.
    options.key_types = sorted(options.key_types, key=lambda kind: kind not in kinds)


def fingerprint_of(key: paramiko.PKey) -> str:
    """The fingerprint of a key, as `ssh-keygen -l` writes it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


def check_host_key(name: str, endpoint: Endpoint, key: paramiko.PKey, known: list[KnownKey]) -> None:
    """Accept a server's key if the user knows it.

    Raises:
        DeviceError: it is unknown, changed or revoked; the message has the command to type, or says why not.
    """
    content, kind = key.get_base64(), key.get_name()
    fingerprint = fingerprint_of(key)
    revoked = next((one for one in known if one.revoked and one.content == content), None)
    if revoked is not None:
        raise DeviceError(
            f"{name}: {endpoint.key_name} shows a host key that {revoked.place} revokes ({kind}"
            f" {fingerprint});"
            " do not use this board before its owner has given it a new key"
        )
    usable = [one for one in known if not one.revoked]
    if any(one.content == content for one in usable):
        return
    if not usable:
        raise DeviceError(
            f"{name}: the host key of {endpoint.key_name} is unknown ({kind} {fingerprint}); compare it"
            " with the"
            f" board's own (ssh-keygen -lf /etc/ssh/ssh_host_{_short(kind)}_key.pub), then accept it:"
            f" {accept_command(endpoint, kind)}"
        )
    forget = f"ssh-keygen -R {shlex.quote(endpoint.key_name)}"
    raise DeviceError(
        f"{name}: THE HOST KEY OF {endpoint.key_name} HAS CHANGED: it shows {kind} {fingerprint}, which is"
        " not the"
        f" one in {usable[0].place}. Somebody may be in between. Only if the board was installed anew,"
        " forget the"
        f" old key and accept this one: {forget} && {accept_command(endpoint, kind)}"
    )


def accept_command(endpoint: Endpoint, kind: str) -> str:
    """The command by which a user accepts a server's key."""
    if endpoint.jumps or endpoint.proxy_command:
        # ssh-keyscan cannot go through another host.
        return f"ssh {shlex.quote(endpoint.alias)} true"
    target = endpoint.known_hosts[0]
    port = "" if not endpoint.key_name.startswith("[") and endpoint.port == 22 else f"-p {endpoint.port} "
    return f"ssh-keyscan {port}-t {_short(kind)} {shlex.quote(endpoint.host)} >> {shlex.quote(str(target))}"


def _short(kind: str) -> str:
    if kind.startswith("ecdsa"):
        return "ecdsa"
    return "rsa" if kind == "ssh-rsa" else "ed25519"


def _known(endpoint: Endpoint) -> Iterator[KnownKey]:
    for path in endpoint.known_hosts:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # none of the files need exist
        for number, line in enumerate(lines, 1):
            words = line.split()
            marker = words.pop(0) if words and words[0].startswith("@") else ""
            # Keys of certificate authorities prove nothing here: paramiko shows no host certificates.
            if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked"):
                continue
            if _matches(words[0], endpoint.key_name):
                yield KnownKey(words[1], words[2], bool(marker), f"{path}:{number}")


def _matches(field: str, name: str) -> bool:
    """Whether a line's first field names a host: hashed, or patterns of which "!" excludes."""
    if field.startswith(_HASHED):
        with contextlib.suppress(ValueError):
            salt, digest = (base64.b64decode(part) for part in field[len(_HASHED) :].split("|"))
            return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
        return False
    found = False
    for pattern in field.split(","):
        # Square brackets stand for themselves here, as in [host]:port.
        literal = pattern.removeprefix("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, literal):
            if pattern.startswith("!"):
                return False
            found = True
    return found
