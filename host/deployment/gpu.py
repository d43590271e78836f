"""`--processor auto`: the model on the board's CPU and on its GPU, both verified; the better one is taken."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from host.deployment.clock import StageClock
from host.deployment.compile import one_line
from host.deployment.processor import gpu_profile, why_no_gpu
from host.deployment.variants import Variant
from host.deployment.verify import verify
from host.errors import BuildError, EngineError, ImportFailed, LoweringError, MeasureError, SessionLost
from host.model import ImportedModel

if TYPE_CHECKING:
    import numpy as np

    from host.deployment.making import Maker
    from host.measure.paired import PairedResult, Ratio
    from host.transport import Device, Session

GPU = "gpu"
_CPU = "cpu"
_ROUNDS = 12
_TIME_LIMIT_S = 120.0


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


def better_of(
    device: Device,
    model: ImportedModel,
    variants: tuple[Variant, Variant],
    inputs: Sequence[np.ndarray],
    objective: str,
    clock: StageClock,
) -> Variant:
    """Verify the model on the GPU and measure it beside the CPU; one that fails or is not better is out.

    Args:
        device: where both run.
        model: for its golden cases.
        variants: on the CPU, and on the GPU.
        inputs: to measure with.
        objective: "latency", "energy" or "edp".
        clock: counts the stages.

    Raises:
        DeviceError: the device went away.
    """
    from host.measure.paired import compare

    cpu, gpu = variants
    note = clock.progress.note
    with ExitStack() as stack, clock.stage("processor"):
        try:
            first = _opened(stack, device, gpu)
            verdict, _ = verify(first, model.signature, model.golden)
            if not verdict.passed:
                note(f"the GPU is left out: {verdict.message}")
                return cpu
            sessions = {_CPU: _opened(stack, device, cpu), GPU: first}
            energy_rounds = 0 if objective == "latency" else _ROUNDS
            result = compare(sessions, inputs, rounds=_ROUNDS, energy_rounds=energy_rounds)
            ratio = _ratio(result, objective)
        except (EngineError, SessionLost, MeasureError) as error:
            note(f"the GPU is left out: {one_line(error)}")
            return cpu
    note(
        f"{objective}, CPU over GPU: {ratio.value:.2f} (95% {ratio.low:.2f} to {ratio.high:.2f}): "
        f"the {'GPU' if ratio.value > 1.0 else 'CPU'} is taken"
    )
    return gpu if ratio.value > 1.0 else cpu


def _ratio(result: PairedResult, objective: str) -> Ratio:
    if objective == "energy":
        return result.energy_ratio(_CPU, GPU)
    return result.edp_ratio(_CPU, GPU) if objective == "edp" else result.ratio(_CPU, GPU)


def _opened(stack: ExitStack, device: Device, variant: Variant) -> Session:
    session = stack.enter_context(
        device.open_session("tvm", threads=variant.threads, time_limit_s=_TIME_LIMIT_S)
    )
    session.load(variant.path)
    return session
