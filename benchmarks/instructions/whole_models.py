"""Executed instructions of a whole model for a board that is not there, kernel by kernel."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from host.compile.bundle_builder import BundleBuilder
from host.compile.device_profile import target_profile
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.compile.static_model import Compiled
from host.deploy.instructions import kernel_calls
from host.emulation.counting import count_kernel
from host.options import CompileOptions
from host.progress import Silence, StageClock


@dataclass(frozen=True)
class CountedKernel:
    """One kernel of a model.

    Attributes:
        name: of the kernel.
        rule: of its design space, "" where it has a default schedule.
        calls: in one run of the model.
        instructions: of one call.
    """

    name: str
    rule: str
    calls: int
    instructions: int

    @property
    def in_all(self) -> int:
        """Instructions of all calls in one run of the model."""
        return self.calls * self.instructions


def compiled_for(options: CompileOptions, target: str, folder: Path) -> Compiled:
    """A model as `sdk compile --target` makes it.

    Args:
        options: which file, and how.
        target: a name of `targets.declared()`.
        folder: for the bundle and scratch files.

    Raises:
        ImportFailed, LoweringError, BuildError: the model cannot be compiled.
        EngineError: its own runtime cannot run it.
    """
    clock = StageClock(Silence())
    profile = target_profile(target, options.threads)
    builder = BundleBuilder(ModelCompiler(options, profile, folder, clock))
    return builder.compile(read_model(options, clock, None, profile))


def counted_kernels(options: CompileOptions, target: str) -> list[CountedKernel]:
    """The kernels of a model and their instructions, those that take most first.

    Only the library is made and run: no device, no verification.

    Args:
        options: which file, and how.
        target: a name of `targets.declared()` whose architecture is aarch64.

    Raises:
        EdgeError: see `compiled_for` and `host.emulation.counting.count_model`.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-instructions-") as scratch:
        made = compiled_for(options, target, Path(scratch))
        rules = {task.name: task.rule for task in made.tasks}
        content = made.library.read_bytes()
        found = [
            CountedKernel(
                one.name, rules[one.name], one.calls, count_kernel(content, one.name, one.arguments)
            )
            for one in kernel_calls(made.lowered)
        ]
    return sorted(found, key=lambda one: one.in_all, reverse=True)
