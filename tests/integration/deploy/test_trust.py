"""Bundles of others on the command line: what they write, what they run, and what their refusal says."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sdk
from device_agent.__main__ import main as device_agent
from host.keys import host_key
from sdk.cli.main import main
from tests.integration import small_models
from tests.signing import entry, reseal, sign


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle directory, its inputs beside it."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "EDGETLM_STORE"):
            patch.setenv(name, str(folder / name))
        model = small_models.convnet(folder / "net.onnx")
        sdk.compile(model, output=folder / "bundle", target="x86_64-v3", threads=1, backend="tvm")
    np.savez(folder / "x.npz", image=np.zeros((1, 3, 16, 16), np.float32))
    return folder


@pytest.fixture
def copy(compiled: Path, tmp_path: Path) -> Path:
    """The bundle, to be changed."""
    return Path(shutil.copytree(compiled / "bundle", tmp_path / "copy"))


def zipped(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for file in folder.iterdir():
            out.write(file, file.name)
    return archive


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "home" not in path.parts}


@pytest.mark.parametrize("where", ["absolute", "../../escaped", "..", "a/../../escaped"])
@pytest.mark.parametrize("command", ["run", "profile", "explain"])
def test_a_zip_writes_nowhere(
    command: str, where: str, compiled: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(tmp_path / "escaped") if where == "absolute" else where
    payload = b"ssh-ed25519 AAAA somebody"
    (copy / "authorized_keys").write_bytes(payload)
    files = json.loads((copy / "manifest.json").read_text())["files"]
    reseal(copy, name=name, files={**files, "authorized_keys": entry(payload)})
    archive = zipped(copy, tmp_path / "evil.zip")
    before = files_below(tmp_path)
    more = {"run": ["--input", str(compiled / "x.npz")], "profile": [], "explain": ["--task", "conv"]}
    assert main([command, str(archive), *more[command]]) == 1
    assert files_below(tmp_path) == before
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "its name is not made of letters" in error


def test_a_changed_bundle_never_answers(
    compiled: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--input", str(compiled / "x.npz")]
    assert main(["run", str(copy), *arguments]) == 0
    whole = {file.name: file.read_bytes() for file in copy.iterdir()}
    capsys.readouterr()
    for name, content in whole.items():
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        (copy / name).write_bytes(bytes(changed))
        for place in (copy, zipped(copy, tmp_path / f"{name}.zip")):
            assert main(["run", str(place), *arguments]) == 1, name
            told = capsys.readouterr()
            assert told.out == "" and told.err.count("\n") == 1, name
        (copy / name).write_bytes(content)
    assert main(["run", str(copy), *arguments]) == 0


def test_what_the_terminal_shows_of_a_bundle_is_text(
    compiled: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signature = json.loads((copy / "manifest.json").read_text())["signature"]
    signature["inputs"][0]["name"] = "\x1b]0;PWN\x07\x1b[31mred\u202e"
    reseal(copy, signature=signature)
    assert main(["run", str(copy), "--input", str(compiled / "x.npz")]) == 2
    told = capsys.readouterr()
    assert "\\x1b]0;PWN\\x07" in told.err
    assert all(line.isprintable() for line in (told.out + told.err).splitlines())


def test_a_stranger_is_refused_trusted_and_revoked(
    compiled: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = host_key(tmp_path / "stranger")
    sign(copy, (copy / "manifest.json").read_bytes(), stranger)
    run = ["run", str(copy), "--input", str(compiled / "x.npz")]
    assert main(run) == 1
    assert f"sdk keys trust {stranger.public} --name NAME" in capsys.readouterr().err
    assert main([*run, "--trust", "unsigned"]) == 0
    assert capsys.readouterr().out.startswith("warning: the bundle ")
    assert main(["keys", "trust", stranger.public, "--name", "build machine"]) == 0
    assert main(run) == 0
    assert "warning" not in capsys.readouterr().out
    assert main(["keys", "revoke", "build machine"]) == 0
    assert capsys.readouterr().out == "local refuses build machine from now on\n"
    for level in ("signed", "unsigned"):
        assert main([*run, "--trust", level]) == 1
        assert "build machine" in capsys.readouterr().err
    assert main(["keys", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["trusted", host_key().public],
        ["revoked", stranger.public],
    ]
    assert listed[0].endswith("(this host)")
    assert main(["keys", "list", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["state"], row["identity"], row["own"]) for row in rows] == [
        ("trusted", host_key().public, True),
        ("revoked", stranger.public, False),
    ]
    assert main([*run, "--trust", "everything"]) == 2
    assert "--trust everything: use signed or unsigned" in capsys.readouterr().err


def test_a_hosts_own_key_stays_revoked(
    compiled: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "show"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"{host_key().public}  {host_key().name}\n"
    assert main(["keys", "revoke", host_key().public[:16]]) == 0
    for _ in range(2):  # the next connection does not enrol it again
        assert main(["run", str(copy), "--input", str(compiled / "x.npz")]) == 1
        assert "whose key was revoked" in capsys.readouterr().err


@pytest.fixture
def own_umask() -> Iterator[None]:
    """The agent's command line is a process of its own, which takes rights from its files."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.mark.usefixtures("own_umask")
def test_a_device_changes_its_keys_without_a_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = ["--home", str(tmp_path / "device-home")]
    assert device_agent(["keys", "list", *home]) == 0
    assert capsys.readouterr().out == ""
    assert device_agent(["keys", "trust", "a" * 64, "laptop", *home]) == 0
    assert device_agent(["keys", "revoke", "laptop", *home]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"revoked  {'a' * 64}  laptop, on 20")
    assert device_agent(["keys", "trust", "no key", "laptop", *home]) == 1
    assert device_agent(["keys", "revoke", *home]) == 1
    assert "keys revoke takes 1 words" in capsys.readouterr().err


def test_a_key_that_others_can_read_signs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGETLM_KEYS", str(tmp_path / "keys"))
    assert main(["keys", "show"]) == 0
    path = tmp_path / "keys" / "host.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    for damage, message in (
        (lambda: path.chmod(0o644), "can be read by others"),
        (lambda: (path.chmod(0o600), path.write_text("no key")), "is no Ed25519 key"),
    ):
        damage()
        assert main(["keys", "show"]) == 2
        assert message in capsys.readouterr().err
    path.unlink()
    assert main(["keys", "show"]) == 0
