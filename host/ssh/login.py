"""Logging in: the user's keys and SSH agent, offered in the order that OpenSSH does."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from device_agent.contract.text import printable
from host.errors import DeviceError
from host.ssh.endpoint import Endpoint


@dataclass
class _Attempts:
    """What was tried.

    Attributes:
        refused: names of the keys that the server did not take.
        locked: files that need a passphrase.
        unusable: files that are no keys, with the reason.
    """

    refused: list[str] = field(default_factory=list)
    locked: list[Path] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)


def log_in(name: str, endpoint: Endpoint, transport: paramiko.Transport) -> None:
    """Authenticate with the first key that the server takes.

    Raises:
        DeviceError: it takes none; the message says what to type.
    """
    attempts = _Attempts()
    methods = _methods(endpoint, transport)
    if methods is None:
        return  # it asks for nothing
    if "publickey" not in methods:
        raise DeviceError(
            f"{name}: {endpoint.address} takes no keys, only {_names(methods, ' or ')}; allow them on"
            " the board"
            " (PubkeyAuthentication yes in /etc/ssh/sshd_config)"
        )
    for key, label in _keys(endpoint, attempts):
        try:
            further = transport.auth_publickey(endpoint.user, key)
        except paramiko.AuthenticationException:
            attempts.refused.append(label)
            continue
        except paramiko.SSHException as error:
            raise DeviceError(
                f"{name}: {endpoint.address} ended the login after {len(attempts.refused) + 1} keys"
                f" ({printable(error)});"
                " name the right one: --identity FILE, or IdentityFile and IdentitiesOnly in ~/.ssh/config"
            ) from error
        if not further:
            return
        raise DeviceError(
            f"{name}: {endpoint.address} wants {_names(further, ' and ')} besides a key, which nobody"
            " can type"
            " here; allow keys alone for this user on the board (AuthenticationMethods in"
            " /etc/ssh/sshd_config)"
        )
    raise DeviceError(f"{name}: {_refusal(endpoint, attempts, 'password' in methods)}")


def _methods(endpoint: Endpoint, transport: paramiko.Transport) -> set[str] | None:
    """Ways to log in that the server offers; None if it wants none."""
    try:
        transport.auth_none(endpoint.user)
    except paramiko.BadAuthenticationType as error:
        return set(error.allowed_types)
    except paramiko.AuthenticationException:
        return {"publickey"}
    return None


def _names(methods: Iterable[str], between: str) -> str:
    """The server's names of ways to log in."""
    return between.join(sorted(printable(method, 60) for method in methods))


def _keys(endpoint: Endpoint, attempts: _Attempts) -> Iterator[tuple[paramiko.PKey, str]]:
    offered = set()
    wanted = {blob for path in endpoint.identities if (blob := _public_half(path)) is not None}
    agent = paramiko.Agent()
    try:
        held = {key.asbytes(): key for key in agent.get_keys()}
        # Those of the files named by the user come first, as they may be locked on disk.
        for blob in sorted(held, key=lambda blob: blob not in wanted):
            if blob in wanted or not endpoint.only_identities:
                offered.add(blob)
                yield held[blob], f"{held[blob].comment or held[blob].get_name()} of the SSH agent"
        for path in endpoint.identities:
            if not path.is_file() or _public_half(path) in offered:
                continue
            try:
                yield paramiko.PKey.from_path(path), str(path)
            except (paramiko.PasswordRequiredException, TypeError):
                attempts.locked.append(path)
            except (paramiko.SSHException, ValueError, OSError) as error:
                attempts.unusable.append(f"{path} ({printable(error)})")
    finally:
        agent.close()


def _public_half(path: Path) -> bytes | None:
    """The key of the .pub file beside a private one, by which the agent's keys are distinguished."""
    try:
        return bytes(paramiko.pkey.PublicBlob.from_file(f"{path}.pub").key_blob)
    except (OSError, ValueError):
        return None


def _refusal(endpoint: Endpoint, attempts: _Attempts, passwords: bool) -> str:
    if attempts.locked:
        names = shlex.join(str(path) for path in attempts.locked)
        return (
            f"{names} is protected by a passphrase; unlock it for this session: ssh-add {names}"
            " (eval $(ssh-agent) before, if no agent runs)"
        )
    tried = f"refuses {', '.join(attempts.refused)}" if attempts.refused else "was offered no key"
    broken = f"; unusable: {', '.join(attempts.unusable)}" if attempts.unusable else ""
    existing = [path for path in endpoint.identities if path.is_file()]
    if not existing and not attempts.refused:
        return (
            f"{endpoint.address} {tried}: this account has none{broken}; make one and give it to the board:"
            f" ssh-keygen -t ed25519 && ssh-copy-id {endpoint.address}"
        )
    way = f"ssh-copy-id {endpoint.address}"
    if passwords:
        return f"{endpoint.address} {tried}{broken}; give the board your key by password: {way}"
    return (
        f"{endpoint.address} {tried}{broken}; name the right key with --identity FILE, or have the board's"
        " owner add"
        " yours to ~/.ssh/authorized_keys there"
    )
