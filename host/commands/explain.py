"""Explain a kernel of a bundle: the walk that constructed it, and its place on the roofline."""

from __future__ import annotations

import tempfile
from pathlib import Path

from host import bundle
from host.compile.explanation import Explanation, explained
from host.compile.stored_tasks.file import read_task
from host.errors import UserError
from host.manifest import Kernel, Manifest


def explain(path: Path, task: str) -> Explanation:
    """Explain one kernel of a bundle.

    Args:
        path: bundle directory or zip.
        task: the kernel's name, or a part of exactly one name.

    Raises:
        ModelFileError: there is no bundle.
        BundleError: it is damaged.
        UserError: the bundle has no compiled kernels, or none or several of this name.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as scratch:
        directory = bundle.unpacked(path, Path(scratch))
        manifest = bundle.load(directory)
        length = manifest.signature.length
        if length is not None:
            raise UserError(
                f"{path} serves {length.name}={length.low}..{length.high}, and a kernel is explained at one "
                "length: compile the model with --shape for one length, and explain that bundle"
            )
        kernel = _kernel(path, manifest, task)
        stored = read_task(directory, kernel.task)
    return explained(manifest, kernel, stored)


def _kernel(path: Path, manifest: Manifest, name: str) -> Kernel:
    if not manifest.kernels:
        raise UserError(f"{path} runs with {manifest.backend} and has no kernels to explain")
    exact = [kernel for kernel in manifest.kernels if kernel.name == name]
    fitting = exact or [kernel for kernel in manifest.kernels if name and name in kernel.name]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(kernel.name for kernel in (fitting or manifest.kernels))
    what = f"several kernels fit --task {name}" if fitting else f"no kernel is called {name!r}"
    raise UserError(f"{path}: {what}: use one of {names}")
