"""The SSH configuration is read as OpenSSH reads it: both are asked about the same files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from host.ssh.endpoint import Endpoint, endpoint_for

FILES = {
    "plain": "Host board\n  HostName 10.0.0.7\n  User me\n  Port 2222\n",
    "first value wins": "Host board\n  User one\nHost b*\n  User two\n  Port 2200\nHost *\n  Port 2300\n",
    "patterns and negation": "Host pi* !pi9\n  User pi\nHost pi?\n  Port 2201\nHost *\n  User other\n",
    "several names": "Host board pi1 pi9\n  HostName %h.example\n",
    "equals and quotes": 'Host=board\n  HostName = "10.0.0.8"\n  IdentityFile="~/.ssh/a key"\n',
    "case": "HOST board\n  hostNAME 10.0.0.9\n  USER me\n",
    "jumps": "Host board\n  ProxyJump me@gate:2022,inner\n",
    "no jump": "Host board\n  ProxyJump none\nHost *\n  ProxyJump gate\n",
    "command": "Host board\n  HostName 10.0.0.5\n  Port 2222\n  User me\n  ProxyCommand nc %h %p %r %n %%\n",
    "keys": "Host board\n  IdentityFile ~/.ssh/one\n  IdentitiesOnly yes\nHost *\n  IdentityFile ~/.ssh/2\n",
    "alias of the key": "Host board\n  HostKeyAlias five\n  Port 2222\n",
    "match": (
        "Host board\n  HostName b\nMatch host b user me\n  Port 2207\n"
        "Match host b\n  Port 2208\nMatch originalhost board\n  User late\n"
    ),
    "match negated": "Match !originalhost board\n  Port 2208\nMatch all\n  User everybody\n",
    "comments": "# a\n\nHost board # not a comment for old ones\n  # User no\n  User yes\n",
    "include": "Include one/*.conf two.conf\nHost *\n  User last\n",
    "include in a host": "Host board\n  Include two.conf\n  User me\n",
    "include in a match": "Match originalhost p*\nInclude one/*.conf four.conf\nUser a\nHost *\nUser z\n",
    "lines after an include": "Include one/a.conf\nUser last\nCompression yes\n",
    "an include that includes": "Host p*\n  Include three.conf\nHost *\n  Port 2400\n",
}
INCLUDED = {
    "one/a.conf": "Host board\n  Port 2301\n",
    "one/b.conf": "Host pi*\n  Port 2302\n",
    "two.conf": "Host *\n  Port 2303\n",
    "three.conf": "User three\nHost pi1\n  Include two.conf\n  HostName one.example\n",
    "four.conf": "Match all\n  HostName four.example\nMatch originalhost pi9\n  Port 2304\n",
}
HOSTS = ("board", "pi1", "pi9")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, text in INCLUDED.items():
        path = tmp_path / ".ssh" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(_absolute(text, tmp_path / ".ssh"))
    return tmp_path


def _absolute(text: str, folder: Path) -> str:
    """OpenSSH looks for what is included below the account's home, whatever HOME says."""
    return re.sub(r"(?<= )((?:one/)?[\w*]+\.conf)", rf"{folder}/\1", text)


def of_openssh(config: Path, host: str) -> dict[str, list[str]]:
    """What `ssh -G` says, which connects to nothing."""
    said = subprocess.run(["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in said.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def expanded(text: str, found: Endpoint) -> str:
    """With the tokens that `ssh -G` leaves as they stand."""
    values = {"%h": found.host, "%p": str(found.port), "%r": found.user, "%n": found.alias, "%%": "%"}
    return re.sub("%[hprn%]", lambda token: values[token[0]], text)


@pytest.mark.parametrize("name", FILES)
def test_both_readers_agree(name: str, home: Path) -> None:
    config = home / ".ssh" / "config"
    config.write_text(_absolute(FILES[name], config.parent))
    for host in HOSTS:
        ours, theirs = endpoint_for(host), of_openssh(config, host)
        assert ours.host == theirs["hostname"][0], host
        assert str(ours.port) == theirs["port"][0], host
        assert ours.user == theirs["user"][0], host
        assert ours.only_identities == (theirs["identitiesonly"][0] == "yes"), host
        assert ",".join(ours.jumps) == theirs.get("proxyjump", [""])[0].replace("none", ""), host
        assert ours.proxy_command == expanded(theirs.get("proxycommand", [""])[0], ours), host
        if "IdentityFile" in FILES[name] and len(theirs["identityfile"]) < 3:
            assert list(ours.identities) == [Path(one).expanduser() for one in theirs["identityfile"]], host
        if "hostkeyalias" in theirs:
            assert ours.key_name == theirs["hostkeyalias"][0], host


def test_a_name_alone_is_included_from_the_folder_of_the_file(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Include two.conf\n")
    assert endpoint_for("board").port == 2303


def test_a_percent_sign_of_an_address_is_no_token(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host *\n  ProxyCommand nc %n 10%%h\n")
    assert endpoint_for("fe80::1%hn0").proxy_command == "nc fe80::1%hn0 10%h"
