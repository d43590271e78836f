"""Licences go with what a board is sent, and NOTICE names all of it."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

import host
from host.payload import PayloadError, licences, payload_for, wheels
from host.payload import python as python_runtime
from host.payload.engines import engine_parts
from host.payload.licences import cuda_licences, is_licence, missing_licences, native_licences
from host.payload.pins import pins
from host.payload.wheels import Part, Platform
from tests.unit.payload.test_payload import BOARD, _machine

ROOT = Path(host.__file__).parents[1]
NOTICE = (ROOT / "NOTICE").read_text()


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("onnxruntime/ThirdPartyNotices.txt", True),
        ("onnxruntime/LICENSE", True),
        ("tvm/licenses/LICENSE.cutlass.txt", True),
        ("numpy-2.4.6.dist-info/licenses/numpy/_core/src/common/pythoncapi-compat/COPYING", True),
        ("apache_tvm_ffi-0.1.14.dist-info/licenses/NOTICE", True),
        ("thing/license.py", False),
        ("thing/LICENSE.py", False),
        ("thing/NOTICED/data.bin", False),
        ("thing/unlicensed.txt", False),
    ],
)
def test_licences_are_known_by_their_names(name: str, licence: bool) -> None:
    assert is_licence(name) is licence


def test_a_wheels_licences_are_wanted_whatever_else_is_dropped() -> None:
    [part] = [one for one in engine_parts("onnxruntime", PLATFORM) if one.requirement.startswith("onnx")]
    assert part.wants("onnxruntime/ThirdPartyNotices.txt")
    assert not part.wants("onnxruntime/tools/make.py")
    assert Part("thing==1.0", keep=("thing/*.so",)).wants("thing-1.0.dist-info/LICENSE.txt")


PLATFORM = Platform("aarch64", (3, 11), (2, 36))


def test_the_texts_of_the_native_executor_are_whole_and_of_these_versions() -> None:
    found = native_licences()
    text = {name: path.read_text() for name, path in found.items()}
    for package in ("apache-tvm", "apache-tvm-ffi", "ziglang"):
        version = importlib.metadata.version(package)
        assert any(name.startswith(f"licences/{package}-{version}/") for name in found), package
    every = "\n".join(text.values())
    for part in ("The Apache Software Foundation", "LLVM Exceptions", "Permission is hereby granted", "GNU"):
        assert part in every, part
    assert set(cuda_licences()) < set(found)


def test_a_package_without_its_text_makes_no_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "_NATIVE", {"apache-tvm": ("licenses/GONE",)})
    with pytest.raises(PayloadError, match=r"apache-tvm lacks its licence \(licenses/GONE\)"):
        native_licences()
    monkeypatch.setattr(licences, "_NATIVE", {"no-such-package": ("LICENSE",)})
    with pytest.raises(PayloadError, match="no-such-package is not installed"):
        native_licences()


def test_wheels_that_lack_their_licence_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    empty = tmp_path / "files"
    empty.mkdir()
    monkeypatch.setattr("host.payload.unpacked", lambda part, platform: empty)
    made = payload_for(_machine("aarch64", "3.8.10", "2.31"), BOARD, "litert")
    [(name, path)] = made.files().items()
    assert name == "licences/tflite-runtime-2.13.0/LICENSE"
    assert "Apache License" in path.read_text()
    assert missing_licences("onnxruntime==1.31.1") == {}


def test_the_notice_names_everything_that_is_sent() -> None:
    sent = {pin.partition("==")[0] for pin in pins()} | {"ziglang"}
    named = set(re.findall(r"^ {4}([a-z][\w-]+) ", NOTICE, re.MULTILINE))
    assert named == sent
    runtime = {part.requirement.partition("==")[0] for part in python_runtime.runtime_parts()}
    assert runtime < named
    # A kept folder from before licences were sent is not used.
    assert wheels._FORMAT >= 3
