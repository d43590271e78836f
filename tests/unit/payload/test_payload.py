"""Payloads: chosen by what a machine is, made of parts of wheels, the same on every host, kept."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from host import payload as payloads
from host.payload import PayloadError, agent_archive, payload_for, platform_of
from host.payload.engines import engine_parts
from host.payload.licences import native_licences
from host.payload.python import runtime_parts, why_not
from host.payload.wheels import Platform
from targets import MachineDescription, board_for, declared

BOARD = board_for(declared()["aarch64"])
assert BOARD is not None


def _machine(machine: str, python: str, glibc: str = "2.36") -> MachineDescription:
    software = {"python": python, "glibc": glibc}
    return replace(declared()["aarch64"], machine=machine, software=software)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_payload_has_the_hash_of_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "file.py").write_text("x = 1\n")
    monkeypatch.setattr(payloads, "unpacked", lambda part, platform: source)
    made = payload_for(_machine("aarch64", "3.11.2"), BOARD, "tvm")
    assert (made.kind, made.engine) == ("python", "tvm")
    made.write_archive(tmp_path / "archive.tar.gz")
    plain = subprocess.run(["gzip", "-dc", tmp_path / "archive.tar.gz"], capture_output=True, check=True)
    assert hashlib.sha256(plain.stdout).hexdigest() == made.sha256
    (source / "sub" / "file.py").write_text("x = 22\n")
    assert payload_for(_machine("aarch64", "3.11.2"), BOARD, "tvm").sha256 != made.sha256


@pytest.mark.parametrize(
    ("machine", "python", "glibc", "reason"),
    [
        ("riscv64", (3, 13), (2, 41), "no wheels of the runtime for riscv64"),
        ("aarch64", (3, 8), (2, 31), "3.9 to 3.14"),
        ("aarch64", (3, 15), (2, 41), "3.9 to 3.14"),
        ("aarch64", (3, 11), (2, 27), "glibc 2.28"),
    ],
)
def test_where_python_cannot_serve_the_native_executor_does(
    machine: str, python: tuple[int, int], glibc: tuple[int, int], reason: str
) -> None:
    assert reason in str(why_not(Platform(machine, python, glibc)))


def test_the_native_payload_is_the_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from host.payload import native

    executable = tmp_path / "built"
    executable.write_bytes(b"\x7fELF executor")
    monkeypatch.setattr(native, "native_executor", lambda architecture: executable)
    made = payload_for(_machine("aarch64", "3.8.10", "2.31"), BOARD, "tvm")
    files = made.files()
    path = files.pop("edgetlm-executor")
    assert (made.kind, path.read_bytes()) == ("native", b"\x7fELF executor")
    assert path.stat().st_mode & 0o111
    assert set(files) == set(native_licences())
    assert not any(text.stat().st_mode & 0o111 for text in files.values())


def test_versions_of_engines_go_by_the_boards_python() -> None:
    found = {
        python: [
            part.requirement for part in engine_parts("onnxruntime", Platform("aarch64", python, (2, 31)))
        ]
        for python in ((3, 8), (3, 10), (3, 11))
    }
    assert found == {
        (3, 8): ["onnxruntime==1.19.2", "numpy==1.24.4"],
        (3, 10): ["onnxruntime==1.23.2", "numpy==2.2.6"],
        (3, 11): ["onnxruntime==1.31.1", "numpy==2.4.6"],
    }
    assert (
        engine_parts("litert", Platform("aarch64", (3, 8), (2, 31)))[0].requirement
        == "tflite-runtime==2.13.0"
    )


@pytest.mark.parametrize(
    ("engine", "machine", "python", "reason"),
    [
        ("onnxruntime", "riscv64", (3, 13), "no wheels for riscv64"),
        ("litert", "aarch64", (3, 7), "3.8 to 3.14"),
        ("openvino", "aarch64", (3, 11), "not pushed to boards"),
    ],
)
def test_an_engine_without_wheels_has_a_reason(
    engine: str, machine: str, python: tuple[int, int], reason: str
) -> None:
    with pytest.raises(PayloadError, match=reason):
        engine_parts(engine, Platform(machine, python, (2, 36)))


def test_an_agent_that_says_no_version_of_python_is_too_old() -> None:
    with pytest.raises(PayloadError, match="install the agent again"):
        platform_of(replace(declared()["aarch64"], software={}))


def test_tags_go_down_from_the_boards_c_library() -> None:
    tags = Platform("aarch64", (3, 10), (2, 31)).tags
    assert tags[0] == "manylinux_2_31_aarch64" and "manylinux_2_17_aarch64" in tags
    assert not any("2_32" in tag for tag in tags)


def test_pins_are_those_of_this_host() -> None:
    import importlib.metadata

    pins = dict(part.requirement.split("==") for part in runtime_parts())
    assert pins["apache-tvm"] == importlib.metadata.version("apache-tvm")


def test_the_agents_archive_runs_alone(tmp_path: Path) -> None:
    packed = agent_archive()
    assert not any("native/" in name or "simulation/" in name for name in packed.names)
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        archive.extractall(tmp_path, filter="data")
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import sys; sys.path.insert(0, '.'); import device_agent.serve.daemon",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
