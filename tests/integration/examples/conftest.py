"""Bundles and C++ programs that the examples share."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import sdk
from tests.integration.examples.running import EXAMPLES
from tests.integration.small_models import convnet, floats, save


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="package")
def image_bundle(folder: Path) -> Path:
    """A network for images."""
    sdk.compile(convnet(folder / "net.onnx"), output=folder / "net", backend="tvm", threads=1)
    return folder / "net"


@pytest.fixture(scope="package")
def pair_bundle(folder: Path) -> Path:
    """Two inputs and two outputs, with weights."""
    weights = {"a": np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["positive"]),
    ]
    inputs, outputs = [floats("x", 4, 16), floats("b", 4, 8)], [floats("sum", 4, 8), floats("positive", 4, 8)]
    model = save(folder / "pair.onnx", nodes, inputs, outputs, weights)
    sdk.compile(model, output=folder / "pair", backend="tvm", threads=1)
    return folder / "pair"


@pytest.fixture(scope="package")
def run_bundle(folder: Path) -> Path:
    """The C++ program that runs a bundle."""
    return built("run_bundle", folder)


@pytest.fixture(scope="package")
def generate(folder: Path) -> Path:
    """The C++ program that writes texts."""
    return built("generate", folder)


def built(name: str, folder: Path) -> Path:
    """A C++ program, built as for a board, with the compiler that every host has."""
    # Not "CXX": pytest's own environment must not choose another. The system is that of the native executor:
    # zig's C++ library is compiled once for both.
    target = f"{platform.machine()}-linux-gnu.2.28"
    program = folder / name
    command = ["make", "-s", "-C", str(EXAMPLES / "cpp"), f"PYTHON={sys.executable}", f"OUT={folder}"]
    command += [f"CXX={sys.executable} -m ziglang c++ -target {target}", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return program
