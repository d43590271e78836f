"""Requirements: exact versions with hashes, no address of anybody, and the same versions everywhere."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import host

ROOT = Path(host.__file__).parents[1]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
sys.path.insert(0, str(ROOT / "scripts"))
try:
    import lock_requirements
finally:
    sys.path.pop(0)

_ENTRY = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.+!_-]+)"
    r"(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)$"
)
# Environments apart from the project's have versions of their own.
_APART = (
    "llama-cpp-build.txt",
    "llama-cpp.txt",
    "ncnn.txt",
    "onnxruntime-genai.txt",
    "openvino-genai.txt",
    "tflite-export.txt",
    "tflite-runtime.txt",
)


def entries(file: Path) -> dict[str, str]:
    """Version by normalised name; fails on a line that is no pin with hashes."""
    found: dict[str, str] = {}
    for line in file.read_text().replace("\\\n", " ").splitlines():
        line = re.sub(r"\s+", " ", line)
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("-r "):
            assert (file.parent / line.removeprefix("-r ")).is_file(), line
            continue
        match = _ENTRY.match(line)
        assert match, f"{file.name}: {line[:120]}"
        name = normalised(match["name"])
        assert name not in found, f"{file.name} has {name} twice"
        hashes = match["hashes"].split()
        assert hashes == sorted(set(hashes)), f"{file.name}: {name}"
        found[name] = match["version"]
    return found


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project() -> list[tuple[str, str]]:
    """Every requirement of pyproject.toml: normalised name and the rest."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*content["build-system"]["requires"], *content["project"]["dependencies"]]
    for extra in content["project"]["optional-dependencies"].values():
        wanted += extra
    pairs = [re.match(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?(.*)$", text) for text in wanted]
    return [(normalised(pair[1]), pair[2]) for pair in pairs if pair and pair[1] != "edgetlm"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_requirement_is_an_exact_version_with_hashes(file: Path) -> None:
    assert entries(file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_says_where_packages_come_from(file: Path) -> None:
    assert not re.search(
        r"://|--(extra-)?index-url|--find-links|--trusted-host|^-[if] ", file.read_text(), re.M
    )


def test_files_and_project_agree_on_versions() -> None:
    pinned: dict[str, str] = {}
    for file in FILES:
        if file.name not in _APART:
            for name, version in entries(file).items():
                assert pinned.setdefault(name, version) == version, f"{name} in {file.name}"
    assert pinned
    wanted = project()
    assert len(wanted) > 30
    for name, version in wanted:
        assert version == f"=={pinned.get(name)}", f"pyproject.toml: {name}{version}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_script_keeps_a_file_that_is_locked(file: Path) -> None:
    text = file.read_text()
    hashes = lock_requirements.hashes_in(text)
    assert sorted(lock_requirements.pins_of(text)) == sorted(hashes)
    assert sum(map(len, hashes.values())) == text.count("--hash=sha256:")
    assert lock_requirements.locked(text, hashes) == text


def test_the_script_takes_pins_alone() -> None:
    text = "# Why.\n-r host.txt\nthing==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\nother==2\n"
    assert lock_requirements.pins_of(text) == ["thing==1.0", "other==2"]
    made = lock_requirements.locked(text, {"thing==1.0": {"1" * 64}, "other==2": {"3" * 64, "2" * 64}})
    assert made.splitlines() == [
        "# Why.",
        "-r host.txt",
        "thing==1.0 \\",
        "    --hash=sha256:" + "1" * 64,
        "other==2 \\",
        "    --hash=sha256:" + "2" * 64 + " \\",
        "    --hash=sha256:" + "3" * 64,
    ]
    for wrong in ("thing>=1.0\n", "thing\n", "thing @ file:///x\n", "--extra-index-url x\n"):
        with pytest.raises(ValueError, match="is no pin"):
            lock_requirements.pins_of(wrong)
