"""The way of a model, start to end."""

from host.deployment.deploy import compile_bundle, deploy
from host.deployment.making import versions
from host.deployment.options import CompileOptions, DeployOptions, Progress, Silence
from host.deployment.result import Choice, Contender, DeployResult, TaskOutcome, Verification
from host.deployment.tune_model import TunedModel, tune_model

__all__ = [
    "Choice",
    "CompileOptions",
    "Contender",
    "DeployOptions",
    "DeployResult",
    "Progress",
    "Silence",
    "TaskOutcome",
    "TunedModel",
    "Verification",
    "compile_bundle",
    "deploy",
    "tune_model",
    "versions",
]
