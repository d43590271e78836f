"""Hosts, users and ports from anywhere: what a shell or ssh would read is none of an address."""

from __future__ import annotations

import pytest

from host.address import is_host, is_user, parse_address
from host.devices import DeviceEntry, Registry
from host.devices.entry import checked
from host.errors import EdgeError, UserError
from host.ssh import SshConnection
from host.ssh.endpoint import endpoint_for

EVIL_HOSTS = [
    "-oProxyCommand=touch x",
    "h;touch PWN;",
    'h";touch PWN;"',
    "h`id`",
    "$(id)",
    "h|id",
    "h&id",
    "h>x",
    "h h",
    "h'x",
    "h\\x",
    "h\n",
    "h\nx",
    "h\x00",
    "h\x1b[31m",
    "\u202eh",
    "::1%eth0;id",
    "é.local",
    "\uff11",
    "h" * 300,
]
EVIL_USERS = ["-l", "a b", "a;id", "$(id)", "a\n", "a'", 'a"', "a\\", 'a\\"', "a`id`", "\u202ea", "a" * 100]


@pytest.mark.parametrize("host", EVIL_HOSTS)
def test_no_host_with_what_a_shell_reads(host):
    assert not is_host(host)
    for make in (
        lambda: checked(DeviceEntry("ok", "ssh", host=host)),
        lambda: endpoint_for(host, "me"),
        lambda: parse_address(f"me@{host}"),
        lambda: parse_address(f"me@[{host}]"),
    ):
        with pytest.raises(UserError) as caught:
            make()
        assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize("user", EVIL_USERS)
def test_no_user_with_what_a_shell_reads(user):
    assert not is_user(user)
    for make in (
        lambda: checked(DeviceEntry("ok", "ssh", host="h", user=user)),
        lambda: endpoint_for("h", user),
        lambda: parse_address(f"{user}@h"),
    ):
        with pytest.raises(UserError):
            make()


@pytest.mark.parametrize("host", ["board", "10.0.0.7", "fe80::1%eth0", "::1", "pi-5.local", "my_board"])
@pytest.mark.parametrize("user", ["me", "first.last", "DOMAIN\\me", "a+b", "me-2"])
def test_what_hosts_and_users_are_called(host, user):
    entry = checked(DeviceEntry("ok", "ssh", host=host, user=user))
    assert parse_address(entry.address) == (user, host, 0)


@pytest.mark.parametrize("name", ["a\n", "a b", "a'b", "-x", "../x", "x" * 5000, "\u202ea"])
def test_names_that_are_none(name):
    for entry in (
        DeviceEntry(name, "ssh", host="h"),
        DeviceEntry("a", "ssh", host="h", tags=(name,)),
        DeviceEntry("a", "ssh", host="h", board=name),
        DeviceEntry("a", "ssh", host="h", options={name: "x"}),
        DeviceEntry("a", "ssh", host="h", options={"identity": "x\n" + name}),
    ):
        with pytest.raises(UserError) as caught:
            checked(entry)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "line",
    [
        'host = "-oProxyCommand=x;id"',
        'host = "h;touch PWN;"',
        'host = "h"\nuser = "a b;id"',
        'host = "h"\nport = 70000',
        'host = "h"\nport = "22"',
        'host = "h"\nboard = "a\\nb"',
        'host = "h"\noptions = { home = "a\\u001bb" }',
        'host = ["h"]',
        '"\\u001b[31m" = "x"',
    ],
)
def test_a_devices_file_of_another_is_checked_as_the_command_line_is(tmp_path, line):
    path = tmp_path / "devices.toml"
    path.write_text(f'[devices.ok]\nkind = "ssh"\n{line}\n')
    with pytest.raises(UserError) as caught:
        Registry(path).entries()
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_a_devices_file_is_bounded_in_size_and_depth(tmp_path):
    path = tmp_path / "devices.toml"
    path.write_text("[devices]\nx = " + "[" * 100_000)
    with pytest.raises(UserError, match="cannot be read"):
        Registry(path).entries()
    path.write_text("a." * 100_000 + "b = 1")
    with pytest.raises(UserError, match="a line of more than"):
        Registry(path).entries()
    path.write_text("#" * (2 << 20))
    with pytest.raises(UserError, match="bytes"):
        Registry(path).entries()
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        Registry(path).entries()


def test_the_users_proxy_command_runs_nothing_of_an_address(tmp_path, monkeypatch):
    """The configuration of many: names are expanded in a command that a shell reads."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    ran = tmp_path / "ran"
    (tmp_path / ".ssh" / "config").write_text(f'Host *\n  ProxyCommand sh -c "echo %r@%h >> {ran}; exit 1"\n')
    evil = tmp_path / "evil"
    for host, user in (
        (f'h";touch {evil};"', "u"),
        ("h", f"u;touch {evil};"),
        (f"h;touch${{IFS}}{evil};", ""),
    ):
        with pytest.raises(EdgeError):
            SshConnection.to("bench", host, user)
    assert sorted(tmp_path.iterdir()) == [tmp_path / ".ssh"]
    with pytest.raises(EdgeError):
        SshConnection.to("bench", "h", "u")
    assert ran.read_text() == "u@h\n"


@pytest.mark.parametrize(
    "text",
    [
        "Host h\n  Port many",
        "Host h\n  Port 0",
        "Host h\n  HostName a;b",
        "Host h\n  User a;b",
        "Host h\n  ProxyJump me@a;b:22",
        "Host h\n  ProxyJump a:b:c",
    ],
)
def test_what_the_configuration_makes_of_an_address_is_checked_too(tmp_path, monkeypatch, text):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(text + "\n")
    with pytest.raises(UserError):
        SshConnection.to("bench", "h")
