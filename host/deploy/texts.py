"""What a deployment finds out about a language model's texts: how good they are, and how fast they come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from host import bundle
from host.compare.backends import Choice
from host.compare.text_peers.comparison import PeerFiles, compare_texts
from host.compare.text_quality import judge_text
from host.compare.text_speed import measure_text_speed
from host.engines import text_engines, unavailable
from host.language_file import folder_config
from host.model import ImportedModel
from host.model.text_comparison import TextComparison
from host.model.text_quality import TextQuality
from host.model.text_speed import TextSpeed
from host.options import DeployOptions
from host.progress import StageClock
from targets import HardwareModel

# Of a weight, by the option that says it.
_BITS = {"int4": 4, "int8": 8, "fp16": 16, "fp32": 32}
_LOCAL = "local"

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
    decoder = bundle.read_manifest(directory).decoder
    if decoder is None or not device.timing.compares:
        return None
    read = None if hardware is None else hardware.levels[-1].bandwidth_bytes_per_s
    with clock.stage("texts"), device.open_session("tvm", threads) as session:
        session.load(directory)
        return measure_text_speed(session, decoder, step_bytes, read)


def compared_texts(
    format_name: str,
    options: DeployOptions,
    directory: Path,
    threads: int,
    device: Device,
    clock: StageClock,
    on_processor: bool = True,
) -> TextComparison | None:
    """The bundle beside other engines for language models; None without any, and of another model.

    Without `--peer`, those are measured that this machine has.

    Args:
        format_name: of the model.
        options: of the deployment.
        directory: of the bundle.
        threads: to compute with.
        device: that it runs on. Peers run on this machine alone.
        clock: gets the stage, and a note for each peer that is left out.
        on_processor: whether the bundle is for the processor, as peers are; else it is for a GPU.

    Raises:
        EngineError: our engine failed.
    """
    decoder, note = bundle.read_manifest(directory).decoder, clock.progress.note
    if decoder is None:
        return None
    known = text_engines()
    asked = [name for name in options.peers or () if name in known]
    if options.peers is None:
        asked = [one for one in known if one in options.peer_pythons or unavailable(one) is None]
    if not asked:
        return None
    if not on_processor:
        if options.peers is not None or options.peer_pythons:
            note(f"{', '.join(asked)}: measured beside a bundle for the processor; left out on a GPU")
        return None
    if options.device != _LOCAL or not device.timing.decides:
        note(f"{', '.join(asked)}: measured on this machine alone, with --device {_LOCAL}; left out")
        return None
    files = PeerFiles(options.model, _bits(format_name, options), options.peer_files, options.peer_pythons)
    with clock.stage("peers"):
        return compare_texts(
            directory,
            asked,
            files,
            vocabulary=decoder.vocabulary,
            context=decoder.context,
            threads=threads,
            note=note,
        )


def _bits(format_name: str, options: DeployOptions) -> int:
    """Of a weight in a file for peers; 0 where the model is quantised already."""
    if format_name != "transformers" or "quantization_config" in folder_config(options.model):
        return 0
    return _BITS[options.quantize or options.dtype]


def with_texts(choice: Choice, comparison: TextComparison | None) -> Choice:
    """The choice of a backend, with what the comparison of texts says of it.

    A bundle holds no other engine of language models: where one is faster, the choice says so.
    """
    if comparison is None:
        return choice
    best = comparison.best_peer("decode")
    ratio = best.speedup["decode"]
    shown = f"{best.engine} / tvm = {ratio.value:.2f}"
    if ratio.bounded:
        shown += f", 95% bound {ratio.low:.2f} to {ratio.high:.2f}"
    verdict = "no difference shown"
    if ratio.shown_more:
        verdict = "tvm faster"
    elif ratio.shown_less:
        verdict = f"{best.engine} faster, which no bundle holds"
    return replace(choice, why=f"{choice.why}; in decoding {verdict}: {shown}")
