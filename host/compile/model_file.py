"""The model file that is compiled: imported, and released."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from device_agent.contract.manifest import as_name
from host.compile.ranged_model import RangedModel, read_ranged
from host.errors import EdgeError
from host.language_file import ENCODER, is_language_model
from host.model import DeviceProfile, ImportedModel
from host.model_file import ULTRALYTICS, detect_format
from host.options import CompileOptions
from host.options.numeric_types import half_of
from host.progress import StageClock

if TYPE_CHECKING:
    from host.sandbox import Worker
    from targets import MemoryLevel

# Tokens that a language model keeps by default, tokens of one call of its prefill, and those that it verifies
# in one call: so many read the weights once and fit the registers of every processor.
_CONTEXT, _CHUNK, _VERIFIED = 2048, 64, 4
# Tokens of a prefill whose products are those of registers of matrices: of fewer, quantised weights take as
# long to be taken apart as to be multiplied. It is so in contexts of several chunks: a call computes all its
# rows.
_CHUNK_IN_TILES, _CHUNKS_OF_A_CONTEXT = 128, 4
# How many such chunks a long one has, beside which there are short ones: weights are taken apart half as
# often, and a prompt of up to 128 tokens would take 1.8 times as long. With four, half of that would be saved
# again, but the rest of a prompt, up to 399 tokens, would have short chunks, and what products write leaves
# the second cache level: rows of gate and up take 0.67 of their time with two, and 0.64 with four.
_SHORT_OF_A_LONG = 2
# Bytes of an element of a row that tiles multiply, and the share of the second cache level that all rows may
# take: each panel of a weight is multiplied with all of them, and results and panels need a place too.
_TILE_ELEMENT_BYTES, _SHARE_OF_ROWS = 2, 0.5
# Tokens of a chunk from which on these registers multiply.
_LEAST_CHUNK_IN_TILES = 32


def read_model(
    options: CompileOptions,
    clock: StageClock,
    reader: Worker | None = None,
    profile: DeviceProfile | None = None,
) -> ImportedModel:
    """Import the model file under the name that it is to have, quantised before if that is asked for.

    Args:
        options: which file, and how.
        clock: counts the stage.
        reader: a worker of `host.importers.start_ahead` for the file; one is started if None.
        profile: of the target: its architecture is quantised for, and a language model may round what its
            processor multiplies faster then; None to do neither for a certain one.

    Raises:
        UserError: not a model, or its shapes do not fit.
        EngineError: not even its own runtime can run it.
    """
    format_name = detect_format(options.model)
    if is_language_model(format_name):
        return _read_decoder(options, clock, profile)
    if format_name == ENCODER:
        return _read_folder(options, clock)
    if format_name == ULTRALYTICS:
        options = _exported(options, clock)
    if options.ranged:
        return read_ranged(options, clock)
    if options.quantize:
        return _read_quantised(options, profile.board.architecture if profile else "", clock)
    from host.importers import load

    with clock.stage("import"):
        model = load(
            options.model,
            options.fixed_shapes(),
            options.seed,
            half=options.half,
            values=options.values,
            notice=clock.progress.note,
            worker=reader,
            meanwhile=_load_compiler if options.backend in ("auto", "tvm") else lambda: None,
        )
    return replace(model, name=options.name or as_name(model.name))


def _load_compiler() -> None:
    """Import what the next steps use, while this process has nothing to do but to wait for the worker."""
    from host import build, gensor, lowering  # noqa: F401
    from host.lowering.ops import known_operators
    from host.schedules.families import installed_rules

    # An operator or a rule of another package that cannot be used is an error of the step that uses it.
    with contextlib.suppress(EdgeError):
        known_operators()
        installed_rules()


def _exported(options: CompileOptions, clock: StageClock) -> CompileOptions:
    """Export a checkpoint of Ultralytics; returns the options of the ONNX file, whose shapes are fixed."""
    from host.importers.ultralytics.checkpoint import exported_checkpoint

    with clock.stage("export"):
        path = exported_checkpoint(options.model, options.fixed_shapes(), clock.progress.note, options.name)
    return replace(options, model=path, shapes={})


def _read_quantised(options: CompileOptions, architecture: str, clock: StageClock) -> ImportedModel:
    """Quantise the model file and import what that makes, with golden cases of the user's own samples."""
    from host.importers import load
    from host.quantisation import quantise

    assert options.calibration is not None, "check_model requires it"
    made = quantise(
        options.model,
        options.fixed_shapes(),
        options.calibration,
        options.quantize_error,
        architecture,
        clock,
    )
    with clock.stage("import"):
        model = load(made.path, {}, options.seed, samples=made.samples, notice=clock.progress.note)
    return replace(model, name=options.name or as_name(model.name), quantisation=made.result)


def _read_folder(options: CompileOptions, clock: StageClock) -> ImportedModel:
    """Export the model of a folder of transformers, and import what that makes."""
    from host.importers import load
    from host.importers.encoders.archive import exported_folder

    with clock.stage("export"):
        archive = exported_folder(options.model, options.fixed_shapes(), clock.progress.note, options.name)
    with clock.stage("import"):
        half = half_of(options.dtype)
        model = load(archive, {}, options.seed, half=half, notice=clock.progress.note)
    return replace(model, name=options.name or as_name(model.name))


def _read_decoder(options: CompileOptions, clock: StageClock, profile: DeviceProfile | None) -> ImportedModel:
    """Import a language model, which is data only: nothing of it is run."""
    from host.importers.decoders.importer import import_decoder, sizes_of

    with clock.stage("import"):
        sizes = functools.cache(lambda: sizes_of(options.model))
        context = options.context_tokens or min(_CONTEXT, sizes().positions)
        in_tiles = profile is not None and profile.hardware.has_bfloat16_tiles
        quantised = in_tiles and (bool(options.quantize) or sizes().quantised)
        chunk, long_chunk = chunk_of(context, in_tiles=quantised), 0
        if profile is not None and chunk == _CHUNK_IN_TILES:
            long_chunk = long_chunk_of(context, sizes().hidden, profile.hardware.levels)
        model = import_decoder(
            options.model,
            context,
            chunk,
            options.quantize,
            options.seed,
            clock.progress.note,
            options.text,
            _VERIFIED,
            options.group,
            options.sequences,
            half_of(options.dtype) == "float16",
            options.asymmetric,
            options.calibration,
            options.cache,
            profile is not None and profile.hardware.has_fast_bfloat16_layers,
            quantised and chunk >= _LEAST_CHUNK_IN_TILES,
            profile is not None and profile.hardware.half_arithmetic and profile.hardware.gpu is None,
            long_chunk=long_chunk,
        )
    return replace(model, name=options.name or as_name(model.name))


def chunk_of(context: int, *, in_tiles: bool) -> int:
    """Tokens of a call of the prefill.

    Args:
        context: positions that there are.
        in_tiles: whether registers of matrices multiply quantised weights.
    """
    longer = in_tiles and context >= _CHUNKS_OF_A_CONTEXT * _CHUNK_IN_TILES
    return _CHUNK_IN_TILES if longer else min(_CHUNK, context)


def long_chunk_of(context: int, hidden: int, levels: Sequence[MemoryLevel]) -> int:
    """Tokens of a call of a second prefill, where the first one has chunks of `_CHUNK_IN_TILES`.

    Args:
        context: positions that there are.
        hidden: elements of a row between layers.
        levels: of the processor's memory, innermost first.

    Returns:
        0 where there is to be none: a short context has few prompts that are long enough.
    """
    found = _SHORT_OF_A_LONG * _CHUNK_IN_TILES
    near = levels[1].size_bytes if len(levels) > 2 else 0
    fits = found * hidden * _TILE_ELEMENT_BYTES <= _SHARE_OF_ROWS * near
    return found if fits and context >= _CHUNKS_OF_A_CONTEXT * found else 0


def without_source(model: ImportedModel) -> ImportedModel:
    """The model without what only its compilation needs, which is as large as the weights."""
    if isinstance(model, RangedModel):
        return replace(model, source=None)
    return replace(model, module=None, decoder=None)
