"""Inputs of a bundle on a device: what fits, what is named, and arrays of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sdk
from host.errors import ShapeError
from sdk.cli.main import main
from tests.integration import small_models


def test_inputs_that_do_not_fit_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sdk.compile(small_models.convnet(tmp_path / "net.onnx"), output=tmp_path / "bundle", threads=1)
    for arrays, words in (
        ({"image": np.ones((1, 3, 8, 8), np.float32)}, "the model takes float32[1, 3, 16, 16]"),
        (
            {"image": np.ones((1, 3, 16, 16))},
            "the model takes float32[1, 3, 16, 16]: convert it with .astype('float32')",
        ),
        ({"picture": np.ones(1)}, "no input 'picture'"),
        ({}, "input 'image' is missing"),
    ):
        np.savez(tmp_path / "x.npz", **arrays)
        capsys.readouterr()
        assert main(["run", str(tmp_path / "bundle"), "--input", str(tmp_path / "x.npz")]) == 2
        assert words in capsys.readouterr().err


def test_tensors_of_torch_are_inputs_too(tmp_path: Path) -> None:
    import torch

    sdk.compile(small_models.convnet(tmp_path / "net.onnx"), output=tmp_path / "bundle", threads=1)
    image: Any = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    path: Any = {"image": "photo.jpg"}
    with sdk.load(tmp_path / "bundle") as model:
        [found] = model.run(image).values()
        [expected] = model.run({"image": image.numpy()}).values()
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(ShapeError, match=r"input 'image' is a Tensor that NumPy cannot read .*grad"):
            model.run(image.requires_grad_())
        with pytest.raises(ShapeError, match="input 'image' is a str: give a numpy array"):
            model.run(path)
