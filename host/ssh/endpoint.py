"""The address of a board's SSH server: the user's SSH configuration resolved for one name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.address import is_host, is_port, is_user
from host.errors import UserError
from host.places import home, user_name
from host.ssh.configuration import look_up

_DEFAULT_PORT = 22
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"


@dataclass(frozen=True)
class Endpoint:
    """An SSH server as the user's configuration describes it.

    Attributes:
        alias: what the user called it.
        host: address or name to connect to.
        port: of the server.
        user: to log in as.
        identities: private keys to offer, in order.
        only_identities: offer no other keys of the agent than these.
        proxy_command: command whose input and output lead to the server, "" for none.
        jumps: hosts to go through, nearest first.
        known_hosts: files of host keys, the first of which new ones belong in.
        key_name: what the host is called in them.
    """

    alias: str
    host: str
    port: int
    user: str
    identities: tuple[Path, ...]
    only_identities: bool
    proxy_command: str
    jumps: tuple[str, ...]
    known_hosts: tuple[Path, ...]
    key_name: str

    @property
    def address(self) -> str:
        """User, host and port as ssh takes them on its command line."""
        port = "" if self.port == _DEFAULT_PORT else f"-p {self.port} "
        return f"{port}{self.user}@{self.host}"


def endpoint_for(
    host: str, user: str = "", port: int = 0, identity: str = "", known_hosts: str = ""
) -> Endpoint:
    """Resolve a host by ~/.ssh/config and /etc/ssh/ssh_config; what is given here wins.

    Args:
        host: address, name or alias.
        user: "" for the configuration's.
        port: 0 for the configuration's.
        identity: private key file to offer before all others, "" for none.
        known_hosts: the only file of host keys to go by, "" for the configuration's.

    Raises:
        UserError: the configuration, or the key file, cannot be used, or a part of the address is none.
    """
    # Before the configuration is read: it may expand them in commands that a shell runs.
    _checked_part("host", host, is_host(host))
    _checked_part("user", user, not user or is_user(user))
    options = look_up(host, user, port)
    resolved = str(options.get("hostname", host))
    number = port or _port(options.get("port", _DEFAULT_PORT))
    named = [Path(str(name)).expanduser() for name in options.get("identityfile", ())]
    if identity:
        own = Path(identity).expanduser()
        if not own.is_file():
            raise UserError(f"{own} does not exist; give the private key's file with --identity")
        named.insert(0, own)
    jump = str(options.get("proxyjump", "none"))
    command = str(options.get("proxycommand", "none"))
    alias = str(options.get("hostkeyalias", resolved))
    login = user or str(options.get("user", "")) or user_name()
    # What the configuration makes of them is shown, and offered in commands to type.
    _checked_part("host name", resolved, is_host(resolved))
    _checked_part("user", login, is_user(login))
    return Endpoint(
        alias=host,
        host=resolved,
        port=number,
        user=login,
        identities=tuple(named) or tuple(home() / ".ssh" / name for name in _DEFAULT_KEYS),
        only_identities=str(options.get("identitiesonly", "no")).lower() == "yes",
        proxy_command="" if command.lower() == "none" else command,
        jumps=() if jump.lower() == "none" else tuple(hop.strip() for hop in jump.split(",")),
        known_hosts=(Path(known_hosts).expanduser(),)
        if known_hosts
        else _files(options, "userknownhostsfile", _KNOWN_HOSTS)
        + _files(options, "globalknownhostsfile", _SYSTEM_KNOWN_HOSTS),
        key_name=alias if number == _DEFAULT_PORT or "hostkeyalias" in options else f"[{alias}]:{number}",
    )


def _checked_part(what: str, text: str, good: bool) -> None:
    if not good:
        raise UserError(
            f"{printable(repr(text))} is no {what} of an SSH server: it holds what a shell would read;"
            " correct the device's address, or ~/.ssh/config"
        )


def _port(text: object) -> int:
    number = int(str(text)) if str(text).isascii() and str(text).isdigit() else 0
    if not is_port(number):
        raise UserError(f"{printable(repr(text))} is no port of an SSH server; correct ~/.ssh/config")
    return number


def _files(options: Mapping[str, Any], name: str, default: str) -> tuple[Path, ...]:
    return tuple(Path(word.strip('"')).expanduser() for word in str(options.get(name, default)).split())
