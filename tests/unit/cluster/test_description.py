"""The table `[cluster]` of a project file."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.cluster.description import ClusterDescription, ClusterHost, read_cluster
from host.cluster.hosts import kept_token, up
from host.cluster.node import start_command, start_environment
from host.errors import EdgeError, UserError
from sdk.cli.project import find_project

WHOLE = """
model = "net.onnx"
[cluster]
head = "build"
port = 7000
[cluster.hosts.rack]
ssh = "me@rack"
address = "10.0.0.2"
python = "/opt/edgetlm/bin/python"
boards = ["pi5", "pi6"]
cores = 2
board-cores = 2
[cluster.hosts.build]
address = "10.0.0.1"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "edgetlm.toml"
    path.write_text(text)
    return path


def test_a_cluster_has_its_head_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = read_cluster(written(tmp_path, WHOLE))
    rack = ClusterHost(
        "rack", "10.0.0.2", "me@rack", "/opt/edgetlm/bin/python", ("pi5", "pi6"), cores=2, board_cores=2
    )
    assert cluster.hosts == (ClusterHost("build", "10.0.0.1"), rack)
    assert cluster.head == "10.0.0.1:7000"
    # The rest of the file is what it was for other commands.
    monkeypatch.chdir(tmp_path)
    project = find_project()
    assert project is not None and dict(project.values) == {"model": "net.onnx"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = 'net.onnx'", "describes no cluster: add"),
        ("cluster = 3", "write it as a table"),
        ("[cluster]", "hosts: give 1 to 256 tables"),
        ("[cluster.hosts.a]", "hosts.a: address: give the name"),
        ("[cluster.hosts.a]\naddress = '-x'", "hosts.a: address: give the name"),
        ("[cluster.hosts.'a;b']\naddress = 'x'", "a name has letters, digits"),
        ("[cluster.hosts.a]\naddress = 'x'\nssh = '-oProxyCommand=x'", "ssh: give user@address"),
        ("[cluster.hosts.a]\naddress = 'x'\ncore = 1", "hosts.a: no key 'core': use ssh"),
        ("[cluster.hosts.a]\naddress = 'x'\ncores = true", "cores: give a whole number of 0 to"),
        ("[cluster.hosts.a]\naddress = 'x'\nboards = 'pi5'", "boards: give a list of names"),
        ("[cluster]\nhead = 'b'\n[cluster.hosts.a]\naddress = 'x'", "head: b is no host: name one of a"),
        ("[cluster]\nport = 0\n[cluster.hosts.a]\naddress = 'x'", "port: give a whole number of 1 to 65535"),
        (
            "[cluster.hosts]\na = {address = 'x', boards = ['p']}\nb = {address = 'y', boards = ['p']}",
            "boards: p is given 2 times: leave it to one host",
        ),
        ("[cluster.hosts.a]\naddress = 'x'\nboards = ['p', 'p']", "boards: p is given 2 times"),
        ("[cluster]\nhead = ['a']\n[cluster.hosts.a]\naddress = 'x'", r"head: \['a'\] is no host: name one"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_cluster(written(tmp_path, text))


def test_the_secret_is_made_once_and_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    token = kept_token()
    [path] = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) == 64 and kept_token() == token
    # Whoever lists the processes of a host sees none of it.
    assert token not in " ".join(start_command("python3", ("pi5",), head="10.0.0.1:1"))
    assert start_environment(token)["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize("text", ["", "short", "two words that are long enough", "\u00e9" * 20, "x" * 1025])
def test_a_file_without_a_secret_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    kept_token()
    [path] = [one for one in tmp_path.rglob("*") if one.is_file()]
    path.write_text(text)
    with pytest.raises(EdgeError, match="it holds no word of 16 to 1024 ASCII characters"):
        kept_token()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterDescription]:
    """A cluster of this machine, whose port is in use."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    with socket.create_server(("127.0.0.2", 0)) as used:
        yield ClusterDescription((ClusterHost("a", "127.0.0.2"),), used.getsockname()[1])


def test_a_port_in_use_is_named_before_ray_tries(alone: ClusterDescription) -> None:
    (state,) = up(alone)
    assert (state.state, state.reason) == (
        "failed",
        f"something else listens at {alone.head}: end it, or take another port",
    )


def test_a_host_that_runs_as_another_description_says_is_no_success(
    tmp_path: Path, alone: ClusterDescription
) -> None:
    folder = tmp_path / "state" / "edgetlm" / "cluster"
    folder.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "ray.scripts"]) as other:
        try:
            (folder / "a.pid").write_text(str(other.pid))
            (folder / "a.described").write_text("of other boards")
            (state,) = up(alone)
        finally:
            other.kill()
    assert (state.state, state.reason) == (
        "failed",
        "it runs as it was described before: end it with sdk cluster down",
    )
