"""Deployment: from a model file to an installed bundle."""

from host.compare.backends import Choice
from host.compare.entrants import EntrantResult
from host.compare.verification import Verification
from host.compile.task_outcome import TaskOutcome
from host.deploy.deployment import compile_bundle, deploy
from host.deploy.result import DeployResult
from host.options import CompileOptions, DeployOptions
from host.versions import versions

__all__ = [
    "Choice",
    "CompileOptions",
    "DeployOptions",
    "DeployResult",
    "EntrantResult",
    "TaskOutcome",
    "Verification",
    "compile_bundle",
    "deploy",
    "versions",
]
