from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import sdk
from host.errors import UserError


def test_the_public_names_are_these_and_no_others() -> None:
    assert sdk.__all__ == ["compile", "connect", "deploy", "deploy_fleet", "load", "tune"]
    assert sorted(sdk.__all__) == sdk.__all__
    for name in sdk.__all__:
        function = getattr(sdk, name)
        assert callable(function)
        assert inspect.getdoc(function)
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty
        assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())


def test_the_package_is_typed() -> None:
    assert (Path(sdk.__file__).parent / "py.typed").is_file()


def test_a_module_needs_inputs_and_a_file_takes_none() -> None:
    import torch

    with pytest.raises(UserError, match="example_inputs"):
        sdk.deploy(torch.nn.Linear(2, 2))
    with pytest.raises(UserError, match="go with a torch module"):
        sdk.deploy("net.onnx", example_inputs=(torch.zeros(1),))
    with pytest.raises(UserError, match="a dict is no model"):
        sdk.deploy({}, example_inputs=(1,))  # type: ignore[arg-type]
