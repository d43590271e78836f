"""Checks of a call before anything heavy is imported: options, model file, devices, target."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from device_agent.contract.manifest import MANIFEST
from device_agent.contract.text import printable
from host.errors import UserError
from host.model_file.hub import hub_model
from host.options import CompileOptions, DeployOptions
from host.options.compile import METHODS
from host.options.deploy import SINGLE_PRECISION
from host.options.engine import LOCAL
from host.options.of_model import check_for_model

_LONGEST_S = 86400.0


def names_several(device: str) -> bool:
    """Whether `--device` may mean more than one."""
    return "," in device or device.startswith("tag:")


def check_deployment(model: Any, options: DeployOptions) -> None:
    """Refuse a deployment that cannot be.

    Args:
        model: a path, or a torch module, which is checked when it is exported.
        options: of the deployment.

    Raises:
        UserError: an option cannot be, or a device is not known.
        ModelFileError: the file is missing or no model.
    """
    options.check()
    peers = [name for name in options.peers or () if name != SINGLE_PRECISION]
    if peers:
        from host.engines.table import check_peers

        check_peers(peers)
    _check(model, options.device, options)


def check_tuning(model: Any, options: DeployOptions) -> None:
    """Refuse a tuning that cannot be; see `check_deployment`."""
    options.check_for_tuning()
    _check(model, options.device, options)


def check_compilation(model: Any, options: CompileOptions, target: str) -> None:
    """Refuse a compilation that cannot be; see `check_deployment`.

    Raises:
        UserError: there is no such target.
    """
    options.check()
    _check(model, "", options)
    if target != "local":
        from host.compile.device_profile import machine_of

        machine_of(target.partition("@")[0])


def check_profile(model: Path, device: str) -> None:
    """Refuse to measure what is not there: a model file or a bundle on one device; see `check_deployment`."""
    if names_several(device):
        raise UserError(f"--device {printable(device)}: sdk profile measures on one device: name one")
    _check(None if model.is_dir() or model.suffix == ".zip" else model, device)


def check_loadgen(model: Path, scenarios: Sequence[str], seconds: float) -> None:
    """Refuse to drive what is no bundle, by what is no scenario, before anything is measured; none are none.

    Raises:
        UserError: says what to type instead.
    """
    if not 0.0 < seconds <= _LONGEST_S:
        raise UserError(f"--loadgen-seconds {seconds:g}: give seconds from above 0 to {_LONGEST_S:g}")
    if not scenarios:
        return
    if not (model.suffix == ".zip" or (model / MANIFEST).is_file()):
        raise UserError(
            f"--loadgen drives a bundle, and {printable(model)} is none: sdk compile or sdk deploy makes one"
        )
    from host.commands.loadgen import check_scenarios

    check_scenarios(scenarios)


def _check(model: Any, devices: str, options: CompileOptions | None = None) -> None:
    if isinstance(model, str | Path) and hub_model(str(model)) is not None:
        # Looked at when it has been downloaded.
        pass
    elif isinstance(model, str | Path):
        from host.model_file import detect_format

        format_name = detect_format(Path(model))
        if options is not None:
            check_for_model(options, Path(model), format_name)
    elif options is not None and options.quantize:
        raise UserError(
            f"--quantize {options.quantize}: a torch module is quantised as ONNX: export it with "
            "torch.onnx.export, and give that file"
        )
    if options is not None:
        _check_method(options.method)
    # Hosts of another engine know names of their own.
    if devices and (options is None or options.engine == LOCAL):
        from host.devices import resolve

        resolve(devices)


# Methods of this package that need more than the host: module, name and extra of what that is.
_METHODS_WITH_EXTRA = {"tlm": ("torch", "PyTorch", "torch"), "metaschedule": ("xgboost", "XGBoost", "bench")}


def _check_method(method: str) -> None:
    module, title, extra = _METHODS_WITH_EXTRA.get(method, ("", "", ""))
    if module and find_spec(module) is None:
        raise UserError(f"--method {method} needs {title}: pip install 'edgetlm[{extra}]'")
    if method in METHODS:
        return
    from host.extensions import extensions

    known = (*METHODS, *extensions("proposers"))
    if method not in known:
        raise UserError(
            f"--method {printable(method, 80)}: there is no such proposer; use {', '.join(known)}"
        )
