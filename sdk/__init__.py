"""Compile a neural network for an edge device, measure it there, and deploy it.

    import sdk
    result = sdk.deploy("model.onnx", device="local")
    with sdk.connect("local") as device:
        outputs = device.run(result.bundle, {"input": array})

The command line `sdk` makes the same calls and prints their results. `sdk.compiler` has the single steps, for
authors of proposers and rules; `sdk.errors` has the exceptions that the calls raise.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from host.commands.tune import TunedModel
    from host.compile.explanation import Explanation
    from host.deploy.result import DeployResult
    from host.manifest import Manifest
    from host.options import CompileOptions, DeployOptions
    from sdk import errors
    from sdk.api import (
        compare,
        compile,
        connect,
        deploy,
        deploy_fleet,
        explain,
        load,
        load_language_model,
        loadgen,
        profile,
        tune,
    )
    from sdk.device import Device
    from sdk.errors import EdgeError
    from sdk.fleet import FleetDeployment
    from sdk.language_model import LanguageModel
    from sdk.model import Deployment, Model
    from sdk.report.compare import Comparison

__all__ = [
    "Comparison",
    "CompileOptions",
    "DeployOptions",
    "DeployResult",
    "Deployment",
    "Device",
    "EdgeError",
    "Explanation",
    "FleetDeployment",
    "LanguageModel",
    "Manifest",
    "Model",
    "TunedModel",
    "compare",
    "compile",
    "connect",
    "deploy",
    "deploy_fleet",
    "errors",
    "explain",
    "load",
    "load_language_model",
    "loadgen",
    "profile",
    "tune",
]

# Where each name is; it is imported when it is asked for. The command line imports this package before it can
# see to an interruption.
_PLACES = {
    "Comparison": "sdk.report.compare",
    "CompileOptions": "host.options",
    "DeployOptions": "host.options",
    "DeployResult": "host.deploy.result",
    "Deployment": "sdk.model",
    "Device": "sdk.device",
    "EdgeError": "sdk.errors",
    "Explanation": "host.compile.explanation",
    "FleetDeployment": "sdk.fleet",
    "LanguageModel": "sdk.language_model",
    "Manifest": "host.manifest",
    "Model": "sdk.model",
    "TunedModel": "host.commands.tune",
}
_MODULES = ("api", "device", "errors", "fleet", "language_model", "model")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("edgetlm")
    if name in _MODULES:
        return import_module(f"sdk.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'sdk' has no attribute {name!r}")
    return getattr(import_module(_PLACES.get(name, "sdk.api")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
