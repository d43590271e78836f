"""What a deployment finds out about a language model's texts: how good they are, and how fast they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from host import bundle
from host.compare.text_quality import judge_text
from host.compare.text_speed import measure_text_speed
from host.model import ImportedModel
from host.model.text_quality import TextQuality
from host.model.text_speed import TextSpeed
from host.progress import StageClock
from targets import HardwareModel

if TYPE_CHECKING:
    from host.transport import Device


def judged_text(
    model: ImportedModel, directory: Path, threads: int, device: Device, clock: StageClock
) -> TextQuality | None:
    """How well the bundle continues the user's text; None without one.

    Args:
        model: with `text` where the user gave one.
        directory: of the bundle.
        threads: to compute with.
        device: that it runs on.
        clock: gets the stage.

    Raises:
        VerifyError, DeviceError, EngineError: see `judge_text`.
    """
    if model.text is None:
        return None
    with clock.stage("text"), device.open_session("tvm", threads) as session:
        session.load(directory)
        return judge_text(session, model.text)


def timed_text(
    directory: Path,
    threads: int,
    device: Device,
    clock: StageClock,
    step_bytes: int,
    hardware: HardwareModel | None,
) -> TextSpeed | None:
    """How fast the bundle reads a prompt and writes a text; None of another model.

    Args:
        directory: of the bundle.
        threads: to compute with.
        device: that it runs on; nothing is measured where its times say nothing, or
            are those of a simulation, which knows the times of a whole run alone.
        clock: gets the stage.
        step_bytes: of weights that a step reads; 0 of another model.
        hardware: of the processor, for what it reads from memory; None of a GPU.

    Raises:
        DeviceError, EngineError, MeasureError: see `measure_text_speed`.
    """
    decoder = bundle.load(directory).decoder
    if decoder is None or not device.timing.compares:
        return None
    read = None if hardware is None else hardware.levels[-1].bandwidth_bytes_per_s
    with clock.stage("texts"), device.open_session("tvm", threads) as session:
        session.load(directory)
        return measure_text_speed(session, decoder, step_bytes, read)
