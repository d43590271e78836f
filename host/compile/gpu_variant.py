"""`--processor auto`: the model for the board's GPU too, as one more variant for the finals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from host.compile.processor import gpu_profile, why_no_gpu
from host.compile.static_model import one_line
from host.compile.variants import Variant
from host.errors import BuildError, ImportFailed, LoweringError
from host.model import ImportedModel

if TYPE_CHECKING:
    from host.compile.bundle_builder import Maker

GPU = "gpu"


def compiled_for_gpu(maker: Maker, model: ImportedModel) -> Variant | None:
    """The model's bundle for the board's GPU, in a folder beside the CPU's; None where there cannot be one.

    Args:
        maker: of the bundle for the CPU.
        model: with its module.
    """
    note = maker.clock.progress.note
    if maker.profile.board.gpu is None:
        return None
    reason = why_no_gpu(maker.profile)
    if maker.options.ranged:
        reason = "a range of lengths is served by the CPU only"
    elif maker.device is not None and maker.device.emulated:
        reason = "an emulator's times do not say which processor is faster; say --processor gpu"
    elif maker.options.tuned:
        reason = "--trials and --budget tune one processor; say --processor gpu to tune the GPU"
    if reason:
        note(f"the GPU is left out: {reason}")
        return None
    folder = maker.folder / GPU
    folder.mkdir()
    own = replace(maker, profile=gpu_profile(maker.profile), folder=folder)
    try:
        made = own.compiled(model)
    except (ImportFailed, LoweringError, BuildError) as error:
        note(f"the GPU is left out: {one_line(error)}")
        return None
    return Variant(GPU, "tvm", own.directory("tvm"), own.profile.threads, made.tasks)
