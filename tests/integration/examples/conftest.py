"""Bundles and C++ programs that the examples share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import sdk
from tests.integration.small_models import convnet, floats, save
from tests.shared_cache import cpp_example


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
def run_bundle() -> Path:
    """The C++ program that runs a bundle."""
    return cpp_example("run_bundle")


@pytest.fixture(scope="package")
def generate() -> Path:
    """The C++ program that writes texts."""
    return cpp_example("generate")
