"""The way of a model, start to end."""

from host.compile.bundle_builder import versions
from host.compile.result import Choice, Contender, DeployResult, TaskOutcome, Verification
from host.deploy.deployment import compile_bundle, deploy
from host.options import CompileOptions, DeployOptions

__all__ = [
    "Choice",
    "CompileOptions",
    "Contender",
    "DeployOptions",
    "DeployResult",
    "TaskOutcome",
    "Verification",
    "compile_bundle",
    "deploy",
    "versions",
]
