"""Root file systems: what is said when Debian's packages cannot be had."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from host.emulation.rootfs import Recipe, made
from host.errors import DeviceError
from tests.servers.mirror import skip_while_in_flux

RECIPE = Recipe("riscv64", "trixie", ("libc6",))


def unused(archive: tarfile.TarFile, folder: Path) -> None:
    raise AssertionError("there is nothing to unpack")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "Err:2 http://mirror trixie/main\n  File has unexpected size (2 != 3). Mirror sync in progress?\n"
            "E: mmdebstrap failed to run",
            "^Debian's mirror is being updated: its index of trixie is not what it announces; try again",
        ),
        (
            "E: no such host",
            r"cannot be had from mmdebstrap's mirror \(E: no such host\); connect to it or set",
        ),
    ],
)
def test_a_mirror_that_fails_is_named_with_what_to_do(
    said: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "mmdebstrap"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 25\n")
    script.chmod(0o755)
    monkeypatch.setattr("host.emulation.rootfs.tool", lambda name: script)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGETLM_DEBIAN_MIRROR", raising=False)
    with pytest.raises(DeviceError, match=expected):
        made("files", RECIPE, unused)
    assert not list((tmp_path / "cache" / "edgetlm" / "emulation").glob("files-*[!k]"))


def test_no_other_error_skips_a_test() -> None:
    with pytest.raises(pytest.skip.Exception):
        skip_while_in_flux(
            "error: Debian's mirror is being updated: its index of trixie is not what it announces"
        )
    for said in (
        "",
        "error: Debian's packages for riscv64 cannot be had from mmdebstrap's mirror",
        "AssertionError: expected: Debian's mirror is being updated",
    ):
        skip_while_in_flux(said)
