"""The Python API, which the command line uses as well.

Heavy packages are imported inside the calls, so that `sdk --help` answers at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from host.files import check_output_bundle
from host.options import CompileOptions, DeployOptions
from sdk.device import Device
from sdk.files.arrays import read_arrays, write_arrays
from sdk.files.module import as_file, named
from sdk.fleet import FleetDeployment, deploy_fleet
from sdk.language_model import LanguageModel
from sdk.model import Deployment, Model
from sdk.progress import shown
from sdk.request import check_compilation, check_deployment, check_profile, check_tuning, names_several
from sdk.settings import CompileSettings, DeploySettings, as_field, with_settings

if TYPE_CHECKING:
    import torch

    from host.commands.loadgen import LoadgenResult
    from host.commands.tune import TunedModel
    from host.compile.explanation import Explanation
    from host.deploy import DeployResult
    from host.manifest import Manifest
    from host.options import Number, Size
    from host.progress import Progress
    from sdk.report.compare import Comparison
    from sdk.report.sides import Side

PathLike = str | Path

__all__ = [
    "Deployment",
    "Device",
    "FleetDeployment",
    "LanguageModel",
    "Model",
    "compare",
    "compile",
    "connect",
    "deploy",
    "deploy_fleet",
    "explain",
    "load",
    "load_language_model",
    "loadgen",
    "names_several",
    "profile",
    "read_arrays",
    "tune",
    "write_arrays",
]


def deploy(
    model: PathLike | torch.nn.Module,
    options: DeployOptions | None = None,
    *,
    example_inputs: Sequence[Any] | torch.Tensor = (),
    report: PathLike | None = None,
    progress: Progress | None = None,
    **settings: Unpack[DeploySettings],
) -> Deployment:
    """Compile a model for a device, verify it, measure it beside its peers, install it and activate it.

    Args:
        model: ONNX, `.pt2`, TFLite or GGUF file, an Ultralytics `.pt`, a folder of transformers,
            `hf://ORG/MODEL`, or a torch module with `example_inputs`.
        options: of the deployment; the defaults if None.
        example_inputs: tensors for a torch module, or the tensor of its only input; their shapes are the
            model's.
        report: the HTML report; `edgetlm-out/NAME/report.html` if None.
        progress: receives each stage; if None, stages are shown on a terminal and in a notebook.
            `sdk.progress.Silence()` shows nothing.
        settings: fields of the options that differ from `options`, such as `device="jetson"`.

    Returns:
        Every figure, and the paths of bundle and report.

    Raises:
        EdgeError: one of `sdk.errors`; the message is one line with the next step.
    """
    options = named(with_settings(options or DeployOptions(), settings), model)
    source = as_file(model, example_inputs, options.name)
    check_deployment(model, options)
    # The folders of a bundle and of a report are named after the model.
    path = Path(model) if isinstance(model, str | Path) else Path(type(model).__name__.lower())
    options = replace(options, model=path)
    check_output_bundle(options.bundle or _page(None, options, "bundle"), "--bundle")
    from host.importers import start_ahead

    shapes = options.shapes
    with source as path, start_ahead(path, shapes, bool(options.quantize)) as reader:
        from host.deploy import deploy as run_deployment
        from sdk.report.html import StagedReport

        options = replace(options, model=path, command=options.command or _call("deploy", model, options))
        with StagedReport(_page(report, options, "report.html")) as page, shown(progress) as listener:
            result = run_deployment(options, listener, page.write, reader)
    return Deployment(result, page.path)


def compile(
    model: PathLike | torch.nn.Module,
    options: CompileOptions | None = None,
    *,
    output: PathLike,
    target: str = "local",
    example_inputs: Sequence[Any] | torch.Tensor = (),
    progress: Progress | None = None,
    **settings: Unpack[CompileSettings],
) -> Manifest:
    """Compile a model to a bundle; nothing runs, so nothing is verified or measured.

    Args:
        model: see `deploy`.
        options: of the compilation; the defaults if None. With the backend "auto", the bundle has the
            original runtime only if the compiler cannot express the model; the processor "auto" is the CPU.
        output: directory or `.zip` of the bundle.
        target: what to compile for: a name of `sdk targets`, or "local" for this machine.
        example_inputs: see `deploy`.
        progress: see `deploy`.
        settings: see `deploy`.

    Returns:
        The manifest of the bundle.

    Raises:
        EdgeError: one of `sdk.errors`.
    """
    options = named(with_settings(options or CompileOptions(), settings), model)
    source = as_file(model, example_inputs, options.name)
    # Before the target, whose check imports what reaches devices.
    check_output_bundle(Path(output), "--output")
    check_compilation(model, options, target)
    from host.importers import start_ahead

    shapes = options.shapes
    with source as path, start_ahead(path, shapes, bool(options.quantize)) as reader:
        from host.deploy import compile_bundle

        command = options.command or f"sdk.compile({str(model)!r}, target={target!r})"
        options = replace(options, model=path, command=command)
        with shown(progress) as listener:
            return compile_bundle(options, target, Path(output), listener, reader)


def tune(
    model: PathLike | torch.nn.Module,
    options: DeployOptions | None = None,
    *,
    example_inputs: Sequence[Any] | torch.Tensor = (),
    report: PathLike | None = None,
    progress: Progress | None = None,
    **settings: Unpack[DeploySettings],
) -> TunedModel:
    """Measure programs of a model's kernels on a device and train on the results, for later deployments.

    After an interruption the same call continues: earlier measurements count against the budget. The call
    ends within a budget of time, and early when little further gain is expected.

    Args:
        model: see `deploy`.
        options: of the tuning; several devices of a kind (`a,b` or `tag:NAME`) measure at the same time.
        example_inputs: see `deploy`.
        report: the HTML report; `edgetlm-out/NAME/tuning.html` if None.
        progress: see `deploy`.
        settings: see `deploy`.

    Raises:
        EdgeError: one of `sdk.errors`.
    """
    begun_s = time.monotonic()
    options = named(with_settings(options or DeployOptions(), settings), model)
    source = as_file(model, example_inputs, options.name)
    check_tuning(model, options)
    from host.commands.tune import tune_model
    from sdk.report.page import StagedPage
    from sdk.report.tuning import render_tuning

    with source as path:
        options = replace(options, model=path, command=options.command or _call("tune", model, options))
        with StagedPage(_page(report, options, "tuning.html")) as page, shown(progress) as listener:
            result = tune_model(options, listener, begun_s)
            page.write(render_tuning(result))
    return result


def _call(function: str, model: Any, options: DeployOptions) -> str:
    """The text of a Python call, recorded in place of a command line."""
    return f"sdk.{function}({str(model)!r}, device={options.device!r})"


def _page(report: PathLike | None, options: CompileOptions, name: str) -> Path:
    if report is not None:
        return Path(report)
    return Path("edgetlm-out") / options.title / name


def connect(device: str = "local", *, wait_s: float = 0.0) -> Device:
    """Connect to a device; use it in a `with` block.

    Args:
        device: name of the device.
        wait_s: seconds to wait for the device if another host uses it.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """
    from host.transport import connect as run_connect

    return Device(run_connect(device, wait_s))


def load(bundle: PathLike, *, device: str = "local", trust: str = "signed") -> Model:
    """Load a bundle on a device for running; use it in a `with` block.

    Args:
        bundle: directory or `.zip`, or the name of a model that is installed on the device.
        device: name of the device.
        trust: "signed": the device must trust the host that signed the bundle; "unsigned": any bundle is
            accepted, and its code runs on the device as the user (`warning` of the result says so).

    Raises:
        ModelFileError: there is no bundle.
        BundleError: it is damaged, revoked, or not trusted by the device.
        EngineError: the device cannot run it.
    """
    return Model(Path(bundle), device, trust)


def load_language_model(bundle: PathLike, *, device: str = "local", trust: str = "signed") -> LanguageModel:
    """Load the bundle of a language model on a device, to generate texts; use it in a `with` block.

    Args:
        bundle: directory or `.zip`, or the name of a model that is installed on this machine.
        device: name of the device that runs it.
        trust: see `load`.

    Raises:
        UserError: there is no such device, or the bundle is not a language model's.
        ModelFileError: there is no bundle.
        BundleError: it is damaged, revoked, or not trusted.
        EngineError: the device cannot run it.
        DeviceError: it went away.
    """
    return LanguageModel(Path(bundle), device, trust)


def profile(
    model: PathLike,
    *,
    device: str = "local",
    threads: int = 0,
    shapes: Mapping[str, tuple[Size, ...]] | None = None,
    values: Mapping[str, tuple[Number, ...]] | None = None,
    lengths: Sequence[int] = (),
    seed: int = 0,
    trust: str = "signed",
    progress: Progress | None = None,
) -> DeployResult:
    """Measure a model file (compiled, and with its peers) or a bundle on a device; nothing is installed.

    Args:
        model: model file, or directory or `.zip` of a bundle.
        device: name of the device.
        threads: threads for the model; 0 takes the bundle's own, or all cores of the device.
        shapes: see `deploy`.
        values: see `deploy`.
        lengths: see `deploy`.
        seed: see `deploy`.
        trust: of a bundle; see `load`.
        progress: receives the stages.

    Raises:
        EdgeError: one of host.errors.
    """
    source = as_file(model, (), "")
    check_profile(Path(model), device)
    from host.commands.profile import profile as run_profile

    with source as path, shown(progress) as listener:
        sizes, fixed = as_field("shapes", shapes), as_field("values", values)
        return run_profile(path, device, threads, sizes, seed, listener, tuple(lengths), trust, fixed)


def loadgen(
    bundle: PathLike,
    scenarios: Sequence[str] = ("SingleStream", "Offline"),
    *,
    device: str = "local",
    threads: int = 0,
    seconds: float = 10.0,
    seed: int = 0,
    trust: str = "signed",
) -> tuple[LoadgenResult, ...]:
    """Drive a bundle by scenarios of MLPerf's LoadGen, from this host; `profile` has the device's own times.

    Args:
        bundle: directory or `.zip`.
        scenarios: "SingleStream", "Offline".
        device: name of the device.
        threads: threads for the model; 0 takes the bundle's own.
        seconds: least duration of a scenario.
        seed: of the order of the samples.
        trust: see `load`.

    Raises:
        UserError: there is no such scenario, or the package `mlcommons-loadgen` is not installed.
        EdgeError: of the bundle or the device.
    """
    from host.commands.loadgen import run_scenarios

    return run_scenarios(Path(bundle), tuple(scenarios), device, threads, seconds, seed, trust)


def compare(
    before: PathLike | Deployment, after: PathLike | Deployment, *, tolerance: float = 0.0
) -> Comparison:
    """Judge what became better or worse between two deployments of a model, beyond noise.

    Args:
        before: a deployment, or what one left: a file of figures, a bundle, a report.
        after: the same.
        tolerance: share by which a figure may get worse.

    Raises:
        UserError: a file is missing or no result.
    """
    from sdk.report.compare import compare as compare_sides

    return compare_sides(_side(before), _side(after), tolerance)


def _side(one: PathLike | Deployment) -> Side:
    """A side of a comparison; a deployment by its own figures, since the next one replaces its report."""
    from sdk.report.figures import deploy_json
    from sdk.report.sides import read_side, side_of_figures

    if isinstance(one, Deployment):
        return side_of_figures(str(one.report), deploy_json(one.result))
    return read_side(Path(one))


def explain(
    bundle: PathLike, task: str = "", output: PathLike | None = None, records: PathLike = ""
) -> tuple[Explanation, Path]:
    """Write a page that shows how a kernel was constructed (the walk) and what limits it (the roofline).

    Args:
        bundle: directory or `.zip`.
        task: the kernel's name, or a part that fits only one; "" for the only kernel.
        output: the HTML file; `edgetlm-out/NAME/explain-KERNEL.html` if None.
        records: SQLAlchemy URL or path of the records of the bundle's board; the user's own if "".

    Returns:
        The explanation, and the path of the page.

    Raises:
        UserError: there is no such kernel, or the bundle has no compiled kernels; or there are no records.
        BundleError: the bundle is damaged.
        EdgeError: the records cannot be read.
    """
    from host.commands.explain import explain as run_explain
    from sdk.report.kernels.explain import write_explanation

    found = run_explain(Path(bundle), task, str(records))
    default = Path("edgetlm-out") / found.manifest.name / f"explain-{found.kernel.name}.html"
    path = Path(output) if output is not None else default
    write_explanation(found, path)
    return found, path
