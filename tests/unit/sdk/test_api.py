from __future__ import annotations

import gc
import inspect
import io
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

import sdk
from host.errors import BundleError, EdgeError, UserError
from host.options import CompileOptions, DeployOptions, settings_of
from host.options.setting import setting_of
from sdk.cli.main import build_app, main
from sdk.files.module import as_file
from sdk.progress import Silence, shown
from sdk.settings import CompileSettings, DeploySettings, with_settings
from tests.integration import small_models
from tests.unit.compare.samples import result


def test_the_public_names_are_sorted_and_all_there() -> None:
    assert sorted(sdk.__all__) == sdk.__all__
    for name in sdk.__all__:
        assert inspect.getdoc(getattr(sdk, name)), name
    shown = {name for name, value in vars(sdk).items() if not name.startswith("_") and _is_own(value)}
    submodules = {name for name in shown if inspect.ismodule(getattr(sdk, name))}
    assert shown - submodules <= set(sdk.__all__)


def _is_own(value: object) -> bool:
    module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "")
    return module.startswith(("sdk", "host"))


def test_public_functions_are_typed() -> None:
    for function in (getattr(sdk, name) for name in sdk.__all__):
        if inspect.isfunction(function):
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty
            assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())


def test_nothing_heavy_is_loaded_before_it_is_used() -> None:
    code = "import sdk, sys; print({'numpy', 'tvm', 'pydantic', 'torch'} & set(sys.modules) or 'light')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "light"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'deplyo'"):
        sdk.deplyo  # noqa: B018


@pytest.mark.parametrize(
    ("settings", "options"), [(CompileSettings, CompileOptions), (DeploySettings, DeployOptions)]
)
def test_keywords_are_the_fields_of_the_options(settings: type, options: type[CompileOptions]) -> None:
    assert set(settings.__annotations__) == {one.name for one in fields(options)} - {"model"}


def test_keywords_change_the_options_that_are_given() -> None:
    options = with_settings(DeployOptions(device="pi", threads=2), {"threads": 4, "lengths": [1, 2]})
    assert (options.device, options.threads, options.lengths) == ("pi", 4, (1, 2))
    with pytest.raises(TypeError, match="no option 'thread'"):
        with_settings(options, {"thread": 4})


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("text", "notes.txt", Path("notes.txt")),
        ("calibration", "samples.npz", Path("samples.npz")),
        ("records", Path("records.sqlite"), "records.sqlite"),
        ("peers", "onnxruntime", ("onnxruntime",)),
        ("peers", None, None),
        ("power_modes", ["15W"], ("15W",)),
        ("lengths", 16, (16,)),
        ("peer_files", {"ncnn": "net.param"}, {"ncnn": Path("net.param")}),
        ("shapes", {"batch": 1}, {"batch": (1,)}),
        ("shapes", {"ids": [1, [1, 512]]}, {"ids": (1, (1, 512))}),
        ("shapes", {"ids": np.array([1, 128])}, {"ids": (1, 128)}),
        ("shapes", None, {}),
        ("values", {"size": np.float32([0.5, 2])}, {"size": (0.5, 2.0)}),
    ],
)
def test_what_a_caller_writes_becomes_the_value_of_the_field(name: str, given: Any, expected: Any) -> None:
    found = getattr(with_settings(DeployOptions(), {name: given}), name)
    # A NumPy number is equal to one of Python, and is none to what looks for `int`.
    assert found == expected and repr(found) == repr(expected)


def test_a_shape_as_it_is_typed_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        TypeError, match=r"shapes: 'ids' is '1,128': give numbers, as in \{'ids': \(1, 128\)\}"
    ):
        with_settings(DeployOptions(), {"shapes": {"ids": "1,128"}})


def test_each_command_has_a_flag_for_each_of_its_settings() -> None:
    group = typer.main.get_command(build_app())
    for command, options in (("compile", CompileOptions), ("tune", DeployOptions), ("deploy", DeployOptions)):
        parameters = {one.name: one for one in group.commands[command].params}  # type: ignore[attr-defined]
        for option in settings_of(options, command):
            assert parameters[option.name].help == setting_of(option).text


def test_typed_text_becomes_the_value_of_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[DeployOptions] = []

    def deployed(model: Path, options: DeployOptions, **how: object) -> None:
        seen.append(options)
        raise UserError("seen")

    monkeypatch.setattr("sdk.api.deploy", deployed)
    text = "deploy net.onnx --device pi --wait 90s --shape ids=1,1..512 --lengths 9,3 --no-train"
    assert main([*text.split(), "--power-modes", "15W, MAXN", "--peer", "ncnn", "--power-cap", "7.5"]) == 2
    assert main(["deploy", "net.onnx", "--budget", "3m"]) == 2
    options, of_budget = seen
    assert (options.device, options.wait_s, options.reconnect_s, of_budget.budget_s) == ("pi", 90, 300, 180)
    assert (options.shapes, options.lengths) == ({"ids": (1, (1, 512))}, (3, 9))
    assert (options.train, options.power_modes, options.peers) == (False, ("15W", "MAXN"), ("ncnn",))
    assert options.power_cap_w == 7.5


def test_the_package_is_typed() -> None:
    assert (Path(sdk.__file__).parent / "py.typed").is_file()


def test_a_bare_tensor_is_the_only_input(tmp_path: Path) -> None:
    import torch

    with as_file(torch.nn.Linear(3, 2), torch.zeros(2, 3), "net") as path:
        [input_] = torch.export.load(path).example_inputs[0]
    assert input_.shape == (2, 3)
    with pytest.raises(UserError, match="go with a torch module"):
        as_file("net.onnx", torch.zeros(2, 3), "")


def test_a_deployment_prints_as_one_line() -> None:
    whole = result()
    text = repr(sdk.Deployment(replace(whole, tasks=whole.tasks * 500), Path("report.html")))
    assert len(text) < 300
    assert "net on local: tvm, 2.000 ms a run" in text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_to_who_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, seen in ((_Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with shown(None) as listener:
            listener.stage("connect")
        assert ("connect" in stream.getvalue()) == seen
    own = Silence()
    with shown(own) as listener:
        assert listener is own


def test_a_module_needs_inputs_and_a_file_takes_none() -> None:
    import torch

    with pytest.raises(UserError, match="example_inputs"):
        sdk.deploy(torch.nn.Linear(2, 2))
    with pytest.raises(UserError, match="go with a torch module"):
        sdk.deploy("net.onnx", example_inputs=(torch.zeros(1),))
    with pytest.raises(UserError, match=r"a dict holds weights, not the model: .* model\.load_state_dict"):
        sdk.deploy({}, example_inputs=(1,))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="an object of int is no model"):
        sdk.deploy(5, example_inputs=(1,))  # type: ignore[arg-type]
    for wrong, kind in ((np.zeros(2), "ndarray"), ({"x": torch.zeros(2)}, "dict")):
        with pytest.raises(UserError, match=f"example_inputs holds an object of {kind}: give tensors"):
            sdk.deploy(torch.nn.Linear(2, 2), example_inputs=wrong)


def test_a_module_that_is_trained_can_be_trained_on(tmp_path: Path) -> None:
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(), torch.nn.Dropout())
    module.train()
    module[2].eval()
    with as_file(module, torch.zeros(2, 3), "net") as path:
        assert "0.5, True" not in str(torch.export.load(path).graph)
    assert [one.training for one in (module, *module)] == [True, True, True, False]


def test_a_folder_that_cannot_be_written_is_named_with_the_models_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(EdgeError, match=r"^edgetlm-out/net/bundle cannot be written: you may not write in"):
        sdk.deploy(small_models.convnet(tmp_path / "net.onnx"))


def test_cycles_are_looked_for_less_often_within_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    within: list[tuple[int, ...]] = []
    monkeypatch.setattr("sdk.cli.main.build_app", lambda: lambda *_, **__: within.append(gc.get_threshold()))
    assert main(["env"]) == 0
    assert within[0][0] > before[0]
    assert gc.get_threshold() == before


def test_an_installed_model_whose_manifest_is_damaged_is_to_be_deployed_again() -> None:
    from sdk.model import installed_bundle

    entry = {
        "name": "net",
        "version": "0" * 64,
        "active": True,
        "path": "/x",
        "backend": "damaged",
        "manifest": {},
    }
    device: Any = SimpleNamespace(name="pi", bundles=lambda: [entry])
    with pytest.raises(BundleError, match=r"^net on pi is damaged: deploy the model again$"):
        installed_bundle(Path("net"), device)
