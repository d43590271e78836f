"""The Python API; the command line is made of it.

Heavy packages are imported inside the calls, so that `sdk --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk.arrays import read_arrays, write_arrays
from sdk.device import Device
from sdk.fleet import FleetDeployment, deploy_fleet, names_several
from sdk.model import Deployment, Model
from sdk.module_file import as_file

if TYPE_CHECKING:
    import torch

    from host.commands.explain import Explanation
    from host.commands.tune import TunedModel
    from host.compile.options import Size
    from host.deploy import DeployResult
    from host.manifest import Manifest
    from host.progress import Progress

PathLike = str | Path

__all__ = [
    "Deployment",
    "Device",
    "FleetDeployment",
    "Model",
    "compile",
    "connect",
    "deploy",
    "deploy_fleet",
    "explain",
    "load",
    "names_several",
    "profile",
    "read_arrays",
    "tune",
    "write_arrays",
]


def deploy(
    model: PathLike | torch.nn.Module,
    *,
    device: str = "local",
    example_inputs: Sequence[Any] = (),
    backend: str = "auto",
    processor: str = "auto",
    dtype: str = "fp32",
    objective: str = "latency",
    power_cap_w: float | None = None,
    power_modes: Sequence[str] = (),
    trials: int = 0,
    budget_s: float = 0.0,
    train: bool = True,
    reconnect_s: float = 300.0,
    wait_s: float = 0.0,
    records: str = "",
    threads: int = 0,
    shapes: Mapping[str, tuple[Size, ...]] | None = None,
    lengths: Sequence[int] = (),
    seed: int = 0,
    name: str = "",
    bundle: PathLike | None = None,
    report: PathLike | None = None,
    peers: Sequence[str] | None = None,
    peer_files: Mapping[str, Path] | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Deployment:
    """Compile a model for a device, verify and measure it there beside its peers, install, activate.

    Args:
        model: ONNX, `.pt2` or TFLite file, or a torch module with `example_inputs`.
        device: name of the device.
        example_inputs: tensors for a torch module; their shapes are the model's.
        backend: "auto" takes whichever verified engine is faster, else "tvm", "onnxruntime", "litert".
        processor: "cpu", "gpu" (the board's CUDA GPU), or "auto": whichever is better where both can run it.
        dtype: "fp32", or "fp16": tensors take half the memory, and outputs may be off by 1e-2 of the largest.
        objective: "latency", "energy" (joules of a run) or "edp" (their product): what "auto" and the choice
            among variants of the model go by.
        power_cap_w: greatest mean gross watts within the boundary of the device's sensor; None for no limit.
        power_modes: power modes to measure in as well, by name, or "all"; the device is left as it was.
        trials: kernels to measure in all; 0 measures only the finished model, unless there is a `budget_s`.
        budget_s: seconds that measuring kernels may take; 0 sets no limit.
        train: whether the language model learns from what is measured.
        reconnect_s: seconds that a device which goes away while kernels are measured is waited for.
        wait_s: seconds to wait for a device that another host has.
        records: store of records, a SQLite file or an SQLAlchemy URL; the user's own if "".
        threads: threads for the model; 0 takes all cores of the device.
        shapes: shapes of inputs with open dimensions, by name, or sizes by the name of a dimension; one
            size may be a range, as in `{"seq": ((1, 512),)}`.
        lengths: lengths of the range to measure at; a few spread over it if empty.
        seed: of every random choice.
        name: the model's name on the device; the file's without suffix if "".
        bundle: directory or `.zip` of the bundle; `edgetlm-out/NAME/bundle` if None.
        report: the HTML report; `edgetlm-out/NAME/report.html` if None.
        peers: engines to measure beside ours; the format's own runtime if None.
        peer_files: the same model for engines that do not read this format.
        command: the command line to show in bundle and report.
        progress: where stages are told.

    Returns:
        Every figure, and where bundle and report lie.

    Raises:
        EdgeError: one of host.errors; the message is one line that says what to do.
    """
    from host.importers import start_ahead

    with as_file(model, example_inputs, name) as path, start_ahead(path, shapes) as reader:
        from host.deploy import DeployOptions
        from host.deploy import deploy as run_deployment
        from sdk.report.html import render
        from sdk.report.page import StagedPage

        options = DeployOptions(
            model=path,
            name=name,
            backend=backend,
            processor=processor,
            dtype=dtype,
            shapes=dict(shapes or {}),
            lengths=tuple(lengths),
            threads=threads,
            seed=seed,
            trials=trials,
            budget_s=budget_s,
            train=train,
            reconnect_s=reconnect_s,
            wait_s=wait_s,
            records=records,
            command=command or f"sdk.deploy({str(model)!r}, device={device!r})",
            device=device,
            objective=objective,
            power_cap_w=power_cap_w,
            power_modes=tuple(power_modes),
            bundle=Path(bundle) if bundle is not None else None,
            peers=tuple(peers) if peers is not None else None,
            peer_files=dict(peer_files or {}),
        )
        default = Path("edgetlm-out") / (name or path.stem) / "report.html"
        with StagedPage(Path(report) if report is not None else default) as page:
            result = run_deployment(options, progress, lambda made: page.write(render(made)), reader)
    return Deployment(result, page.path)


def compile(
    model: PathLike | torch.nn.Module,
    *,
    output: PathLike,
    target: str = "local",
    example_inputs: Sequence[Any] = (),
    backend: str = "auto",
    processor: str = "auto",
    dtype: str = "fp32",
    cuda: str = "",
    threads: int = 0,
    shapes: Mapping[str, tuple[Size, ...]] | None = None,
    seed: int = 0,
    name: str = "",
    command: str = "",
    progress: Progress | None = None,
) -> Manifest:
    """Compile a model to a bundle; nothing runs, so nothing is verified or measured.

    Args:
        model: see `deploy`.
        output: directory or `.zip` of the bundle.
        target: what to compile for: a name of `sdk targets`, or "local" for this machine.
        example_inputs: see `deploy`.
        backend: see `deploy`; "auto" falls back to the original runtime only where ours cannot compile.
        processor: see `deploy`; "auto" is the CPU.
        dtype: see `deploy`.
        cuda: CUDA version of the board whose GPU is compiled for; that of the usual JetPack if "".
        threads: see `deploy`.
        shapes: see `deploy`.
        seed: see `deploy`.
        name: see `deploy`.
        command: see `deploy`.
        progress: see `deploy`.

    Returns:
        The manifest of the bundle.

    Raises:
        EdgeError: one of host.errors.
    """
    from host.importers import start_ahead

    with as_file(model, example_inputs, name) as path, start_ahead(path, shapes) as reader:
        from host.deploy import CompileOptions, compile_bundle

        options = CompileOptions(
            model=path,
            name=name,
            backend=backend,
            processor=processor,
            dtype=dtype,
            cuda=cuda,
            shapes=dict(shapes or {}),
            threads=threads,
            seed=seed,
            command=command or f"sdk.compile({str(model)!r}, target={target!r})",
        )
        return compile_bundle(options, target, Path(output), progress, reader)


def tune(
    model: PathLike | torch.nn.Module,
    *,
    device: str = "local",
    example_inputs: Sequence[Any] = (),
    objective: str = "latency",
    power_cap_w: float | None = None,
    power_modes: Sequence[str] = (),
    trials: int = 0,
    budget_s: float = 0.0,
    train: bool = True,
    reconnect_s: float = 300.0,
    wait_s: float = 0.0,
    records: str = "",
    threads: int = 0,
    shapes: Mapping[str, tuple[Size, ...]] | None = None,
    seed: int = 0,
    name: str = "",
    report: PathLike | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> TunedModel:
    """Measure programs of a model's kernels on a device and learn from them; later deployments use them.

    The same call goes on where an earlier one was interrupted: what it measured counts against the budget.

    Args:
        model: see `deploy`.
        device: name of the device; several of a kind with commas, or `tag:NAME`, measure side by side.
        example_inputs: see `deploy`.
        objective: what the choice among variants of the tuned model goes by; see `deploy`.
        power_cap_w: see `deploy`.
        power_modes: see `deploy`.
        trials: kernels to measure in all; 0 sets no limit.
        budget_s: seconds in all; 0 sets no limit. It ends earlier when little more is expected.
        train: whether the language model learns from what is measured.
        reconnect_s: seconds that a device which goes away while kernels are measured is waited for.
        wait_s: seconds to wait for a device that another host has.
        records: store of records, a SQLite file or an SQLAlchemy URL; the user's own if "".
        threads: see `deploy`.
        shapes: see `deploy`.
        seed: see `deploy`.
        name: see `deploy`.
        report: the HTML report; `edgetlm-out/NAME/tuning.html` if None.
        command: see `deploy`.
        progress: see `deploy`.

    Raises:
        EdgeError: one of host.errors.
    """
    from host.commands.tune import tune_model
    from host.deploy import DeployOptions
    from sdk.report.page import StagedPage
    from sdk.report.tuning import render_tuning

    with as_file(model, example_inputs, name) as path:
        options = DeployOptions(
            model=path,
            name=name,
            shapes=dict(shapes or {}),
            threads=threads,
            seed=seed,
            trials=trials,
            budget_s=budget_s,
            train=train,
            reconnect_s=reconnect_s,
            wait_s=wait_s,
            records=records,
            command=command or f"sdk.tune({str(model)!r}, device={device!r})",
            device=device,
            objective=objective,
            power_cap_w=power_cap_w,
            power_modes=tuple(power_modes),
        )
        default = Path("edgetlm-out") / (name or path.stem) / "tuning.html"
        with StagedPage(Path(report) if report is not None else default) as page:
            result = tune_model(options, progress)
            page.write(render_tuning(result))
    return result


def connect(device: str = "local", *, wait_s: float = 0.0) -> Device:
    """Connect to a device; use it in a `with` block.

    Args:
        device: name of the device.
        wait_s: how long to wait for it where another host has it.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """
    from host.transport import connect as run_connect

    return Device(run_connect(device, wait_s))


def load(bundle: PathLike, *, device: str = "local", trust: str = "signed") -> Model:
    """Load a bundle on a device for running; use it in a `with` block.

    Args:
        bundle: directory or `.zip`.
        device: name of the device.
        trust: "signed": the device has to trust the host that signed the bundle; "unsigned": anybody's will
            do, and its code runs there as the user (`warning` of the result says so).

    Raises:
        ModelFileError: there is no bundle.
        BundleError: it is damaged, revoked, or not trusted by the device.
        EngineError: the device cannot run it.
    """
    return Model(Path(bundle), device, trust)


def profile(
    model: PathLike,
    *,
    device: str = "local",
    threads: int = 0,
    shapes: Mapping[str, tuple[Size, ...]] | None = None,
    lengths: Sequence[int] = (),
    seed: int = 0,
    trust: str = "signed",
    progress: Progress | None = None,
) -> DeployResult:
    """Measure a model file (ours and its peers) or a bundle on a device; nothing is installed.

    Args:
        model: model file, or directory or `.zip` of a bundle.
        device: name of the device.
        threads: threads for the model; 0 takes the bundle's own, or all cores of the device.
        shapes: see `deploy`.
        lengths: see `deploy`.
        seed: see `deploy`.
        trust: of a bundle; see `load`.
        progress: where stages are told.

    Raises:
        EdgeError: one of host.errors.
    """
    from host.commands.profile import profile as run_profile

    return run_profile(
        Path(model), device, threads, dict(shapes or {}), seed, progress, tuple(lengths), trust
    )


def explain(bundle: PathLike, task: str, output: PathLike | None = None) -> tuple[Explanation, Path]:
    """Write a picture of how a kernel was found and what holds it back: the walk and the roofline.

    Args:
        bundle: directory or `.zip`.
        task: the kernel's name, or a part that fits only one.
        output: the HTML file; `edgetlm-out/NAME/explain-KERNEL.html` if None.

    Returns:
        What was found, and where the picture lies.

    Raises:
        UserError: there is no such kernel, or the bundle holds none of ours.
        BundleError: the bundle is damaged.
    """
    from host.commands.explain import explain as run_explain
    from sdk.report.explain import write_explanation

    found = run_explain(Path(bundle), task)
    default = Path("edgetlm-out") / found.manifest.name / f"explain-{found.kernel.name}.html"
    path = Path(output) if output is not None else default
    write_explanation(found, path)
    return found, path
