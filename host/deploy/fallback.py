"""Compile a model, or deploy its original runtime where the compiler cannot express it."""

from __future__ import annotations

from host.compile.bundle_builder import BundleBuilder
from host.compile.static_model import Compiled
from host.engines import engine_for_format
from host.errors import BuildError, ImportFailed, LoweringError, one_line
from host.model import ImportedModel


def compile_or_fall_back(builder: BundleBuilder, model: ImportedModel) -> tuple[Compiled | None, str]:
    """Compile the model and write the bundle; returns the compiled model, or None and the reason.

    Raises:
        ImportFailed, LoweringError, BuildError: the model cannot be compiled, with `--backend tvm`.
    """
    compiler = builder.compiler
    if compiler.options.backend not in ("auto", "tvm"):
        return None, f"--backend {compiler.options.backend} was asked for"
    try:
        return builder.compile(model), ""
    except (ImportFailed, LoweringError, BuildError) as error:
        # What another runtime takes is not known, so none is installed under a cap.
        if compiler.options.backend == "tvm" or compiler.options.memory_cap_bytes:
            raise
        if not engine_for_format(model.format).peer:
            raise
        reason = one_line(error)
        compiler.clock.progress.note(
            f"the model cannot be compiled, so its original runtime is used: {reason}"
        )
        return None, reason
