"""The user's SSH configuration, read for one name as OpenSSH reads it.

paramiko reads the files; Include and two of ProxyCommand's tokens, which it does not know, are done here.
`ssh -G` is not asked: it leaves the tokens of ProxyCommand and IdentityFile as they stand, names keys that
are not configured, goes by the account's home and not by HOME, and needs OpenSSH's client. A test asks both.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Any

import paramiko

from device_agent.contract.text import printable
from host.errors import UserError
from host.places import home

_DEEPEST_INCLUDE = 16
# Stands for "%" where paramiko must not see a token.
_PERCENT = "\ue000"


def look_up(host: str, user: str, port: int) -> dict[str, Any]:
    """The options for a host by ~/.ssh/config and /etc/ssh/ssh_config, by their names in small letters.

    Args:
        host: as the user calls it, checked: it becomes a part of commands.
        user: that the user gave, "" for none.
        port: that the user gave, 0 for none.

    Raises:
        UserError: a file cannot be used.
    """
    found: dict[str, Any] = {}
    own = home() / ".ssh"
    # The user's own words come first, as on ssh's command line: they stand for %r and %p too.
    given = [*([f"User {user}"] if user else []), *([f"Port {port}"] if port else [])]
    # The first value found for an option is the one that holds; keys of both files are offered.
    for path, base in ((own / "config", own), (Path("/etc/ssh/ssh_config"), Path("/etc/ssh"))):
        lines = [*given, *(_with_tokens(line, host) for line in _lines(path, base))]
        try:
            options = paramiko.SSHConfig.from_text("\n".join(lines)).lookup(host)
        except (paramiko.ConfigParseError, paramiko.CouldNotCanonicalize, ImportError) as error:
            raise UserError(f"{path} cannot be used ({printable(error)}); correct it") from error
        # Every lookup answers with the name itself, which would hide a later file's.
        if options.get("hostname") == host:
            options.pop("hostname")
        found = {**options, **found}
    if isinstance(command := found.get("proxycommand"), str):
        found["proxycommand"] = command.replace(_PERCENT, "%")
    return found


def _with_tokens(line: str, host: str) -> str:
    """A line whose ProxyCommand has those tokens expanded that paramiko does not expand."""
    if not re.match(r"\s*proxycommand\b", line, re.IGNORECASE):
        return line
    values = {"%%": _PERCENT, "%n": host.replace("%", _PERCENT)}
    return re.sub("%[%n]", lambda token: values[token[0]], line)


def _lines(path: Path, base: Path, depth: int = 0, outer: str = "") -> list[str]:
    """Lines of a file, with those that it includes in their place.

    Args:
        path: of the file.
        base: folder of the files that it includes by a name alone.
        depth: files that included it.
        outer: criteria of the block that included it, as Match takes them; they hold for all of the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({printable(error)}); correct it") from error
    lines: list[str] = []
    inside = outer
    for line in text.splitlines():
        words = line.replace("=", " ", 1).split()
        keyword = words[0].lower() if words else ""
        if keyword == "include":
            for included in _included(path, base, words[1:], depth):
                lines += _lines(included, base, depth + 1, inside)
            # What follows stands in the block in which the line stands.
            lines.append(f"Match {inside or 'all'}")
            continue
        if keyword in ("host", "match"):
            inside = _both(outer, keyword, words[1:])
            line = f"Match {inside}" if outer else line
        lines.append(line)
    return lines


def _both(outer: str, keyword: str, words: list[str]) -> str:
    """The criteria of a block, with those of the block that included its file; "" where all hosts match."""
    if keyword == "host":
        own = f"originalhost {','.join(word.strip(chr(34)) for word in words)}"
    else:
        own = "" if [word.lower() for word in words] == ["all"] else " ".join(words)
    return " ".join(part for part in (outer, own) if part)


def _included(path: Path, base: Path, patterns: list[str], depth: int) -> list[Path]:
    if depth == _DEEPEST_INCLUDE:
        raise UserError(f"{path} includes itself; correct it")
    found: list[Path] = []
    for pattern in patterns:
        whole = str(base / Path(pattern.strip('"')).expanduser())
        found += [Path(one) for one in sorted(glob.glob(whole))]  # noqa: PTH207  the pattern may be absolute
    return found
