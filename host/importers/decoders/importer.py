"""A language model, a folder of transformers or a GGUF file, to `ImportedModel`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import ShapeError, UserError
from host.importers.assemble import check_interface, content_hash
from host.importers.decoders.architectures import describe
from host.importers.decoders.constants import Constants, check_bytes
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.folder import ModelFolder, read_folder
from host.importers.decoders.gguf.model import read_gguf
from host.importers.decoders.golden import Functions, Golden, make_golden
from host.importers.decoders.module import (
    BLOCK,
    build_prefill,
    build_step,
    build_together,
    build_verify,
    state_specs,
)
from host.importers.decoders.products import ROUNDED
from host.importers.decoders.quantise import BITS, GROUP, ZERO
from host.importers.decoders.reference import input_energies
from host.importers.decoders.reference.roundings import ALLOWED
from host.importers.decoders.text import (
    CALIBRATION_TOKENS,
    MOST_TOKENS,
    require_tokenizer,
    tokens_of_text,
)
from host.language_file import language_format
from host.model import Decoder, ImportedModel, Signature, TensorSpec
from host.model_file import detect_format


def import_decoder(
    path: Path,
    context: int,
    chunk: int,
    quantize: str = "",
    seed: int = 0,
    notice: Callable[[str], None] = lambda line: None,
    text: Path | None = None,
    verified: int = 0,
    group: int = GROUP,
    sequences: int = 1,
    half: bool = False,
    asymmetric: bool = False,
    calibration: Path | None = None,
    cache: str = "",
    bfloat16: bool = False,
    tiles: bool = False,
    half_sums: bool = False,
    long_chunk: int = 0,
) -> ImportedModel:
    """Read a language model.

    Args:
        path: a folder with config.json, *.safetensors, and tokenizer.json if it has one, or a GGUF file.
        context: positions of the state, a multiple of 16.
        chunk: tokens of one call of the prefill, at most `context`.
        quantize: "int8" or "int4" for the weights of products; "" for float32, or as they are in the file.
        seed: of the prompts of the golden cases.
        notice: gets lines about what is not deployed as it is in the file.
        text: file with a text of the user's, on which the bundle is to be judged; None without.
        group: weights along the inputs that share a scale, where they are quantised here.
        verified: tokens that one call verifies, at most `context`; 0 for no such function.
        sequences: texts that the state has places for, and that one call continues by a token each.
        half: whether the model is to be compiled with tensors in half precision: keys and values are too.
        asymmetric: whether weights of 4 bits that are quantised here have zero points.
        calibration: file with a text of the user's: an error in a weight of 4 bits weighs as much as the
            square of its input there; None to have all errors weigh the same.
        cache: "int8" to keep keys and values as bytes, with a scale for each position of a head; "" for half
            precision beside quantised weights and with `half`, and float32 otherwise.
        bfloat16: whether the target multiplies numbers of bfloat16 faster than those of float32: attention of
            prompts may then round to them, if the reference shows that logits allow it.
        tiles: whether its registers of matrices multiply the quantised weights of a chunk, which rounds them
            and activations to bfloat16: what the reference then shows is that, and not rounding to bytes.
        half_sums: whether its products in half precision add up in it.
        long_chunk: tokens of one call of a second prefill, a multiple of `chunk` and at most a quarter of
            `context`; 0 for no such function.

    Returns:
        The model, with `state`, `decoder`, and `text` where a text is given.

    Raises:
        ModelFileError: the folder is not whole, or does not fit itself.
        ImportFailed: the architecture, or something of it, is not known.
        ShapeError: the context or a chunk does not fit.
        UserError: there is no such way of quantising, the file is quantised already, or the text cannot
            be used.
        EngineError: transformers cannot run the model.
        OSError: a file cannot be read.
    """
    if quantize not in BITS:
        raise UserError(f"--quantize {quantize}: use one of {', '.join(name for name in BITS if name)}")
    read = _read(Path(path))
    if read.bits and quantize:
        raise UserError(f"--quantize {quantize}: {read.path} is quantised already: leave --quantize out")
    if half and (read.bits or quantize):
        raise UserError(f"--dtype fp16: {read.path} is quantised: leave --dtype out")
    description, weights = describe(read.config, read.weights)
    weights = read.with_own_head(weights)
    _check_context(read, description, context, chunk, sequences)
    _check_long_chunk(read, context, chunk, long_chunk)
    read.check(weights.tensors())
    spoken = require_tokenizer(read)
    tokens = None if text is None else tokens_of_text(text, read, context, description.vocabulary)
    bits = read.bits or BITS[quantize]
    asymmetry = ZERO if asymmetric and not read.bits else ""
    check_bytes(read, weights, bits, group, asymmetry)
    sample, importance = _importance(calibration, read, description, weights)
    constants = Constants(
        read, bits, context, group, half=half, asymmetry=asymmetry, importance=importance, cache=cache
    )
    constants.read(weights)

    def make() -> Golden:
        return make_golden(
            read.path,
            description,
            weights,
            constants,
            Functions(context, chunk, verified, sequences, long_chunk),
            seed,
            tokens,
            spoken.sample,
            attended=bfloat16,
            tiles=tiles,
            half_sums=half_sums,
        )

    golden = make() if not cache else _with_bytes(make, constants, notice)
    roundings = golden.roundings
    if not roundings.halves:
        constants.kept = "float32"
    for line in golden.notes:
        notice(line)
    step = build_step(description, weights, constants, context)
    verify = build_verify(description, weights, constants, context, verified) if verified else None
    together = build_together(description, weights, constants, context, sequences) if sequences > 1 else None
    prefill = build_prefill(description, weights, constants, context, chunk, roundings)
    long_prefill = (
        build_prefill(description, weights, constants, context, long_chunk, roundings) if long_chunk else None
    )
    signature = _signature(description)
    state = state_specs(description, context, constants.kept)
    check_interface(step, Signature((*signature.inputs, *state), signature.outputs))
    ends = tuple(token for token in read.end_tokens if token < description.vocabulary)
    for line in (*read.notes, *_left_out(read, weights)):
        notice(line)
    if spoken.tokens > description.vocabulary:
        notice(
            f"The tokenizer has {spoken.tokens} tokens and the model {description.vocabulary}: prompts with "
            "the others are refused. Give the tokenizer.json that belongs to the model."
        )
    settings = {"context": [context], "chunk": [chunk], "bits": [bits], "seed": [seed]}
    # Others have the hash that they always had.
    settings |= {"verified": [verified]} if verified else {}
    settings |= {"group": [group]} if group != GROUP else {}
    settings |= {"sequences": [sequences]} if sequences > 1 else {}
    settings |= {"half": [16]} if half else {}
    settings |= {"asymmetric": [1]} if asymmetry else {}
    settings |= {"calibration": sample} if sample else {}
    settings |= {"cache": [8]} if cache else {}
    settings |= {"long_chunk": [long_chunk]} if long_chunk else {}
    digest = content_hash(read.files(), settings)
    return ImportedModel(
        read.name,
        detect_format(read.path),
        read.path,
        signature,
        step,
        golden.cases,
        digest,
        state=state,
        decoder=Decoder(
            context,
            chunk,
            description.vocabulary,
            ends,
            prefill,
            read.tokenizer,
            verified,
            verify,
            sequences,
            together,
            ROUNDED if roundings.products else 0,
            constants.step_bytes(weights),
            read.chat,
            not roundings.between,
            long_chunk,
            long_prefill,
        ),
        text=golden.text,
        parameters=sum(map(math.prod, dict(weights.tensors()).values())),
    )


def _with_bytes(make: Callable[[], Golden], constants: Constants, notice: Callable[[str], None]) -> Golden:
    """The golden cases with keys and values of bytes, or of halves where the former cannot be computed alike.

    A difference in the last bit of an activation moves some of them by a step. Where that moves logits by
    more than a verification allows, two right programs differ by as much.

    Args:
        make: makes the cases with the keys and values that `constants` say.
        constants: of the model, with bytes.
        notice: gets a line where it is halves.
    """
    golden = make()
    if golden.left <= ALLOWED:
        return golden
    asked, constants.kept = constants.kept, "float16"
    other = make()
    if other.left > ALLOWED:
        constants.kept = asked
        return golden
    notice(
        "keys and values are kept in half precision: as bytes, the last bit of an activation could move "
        f"logits by {golden.left:.1e} of the largest"
    )
    return other


def _importance(
    calibration: Path | None, read: ModelFolder, description: DecoderDescription, weights: DecoderWeights
) -> tuple[list[int], Mapping[str, np.ndarray]]:
    """The tokens of the user's sample, and how much the inputs of each product weigh in it; none without."""
    if calibration is None:
        return [], {}
    tokens = tokens_of_text(
        calibration, read, CALIBRATION_TOKENS, description.vocabulary, "--calibration", CALIBRATION_TOKENS
    )
    size = min(MOST_TOKENS, description.positions)
    pieces = [tokens[begin : begin + size] for begin in range(0, len(tokens), size)]
    names = [part.name for product in weights.products() for part in product.parts]
    return tokens.tolist(), input_energies(read.path, pieces, names)


def _left_out(read: ModelFolder, weights: DecoderWeights) -> tuple[str, ...]:
    """A line about weights in the files that the configuration has no place for; none without."""
    unused = read.unused(weights)
    if not unused:
        return ()
    first = printable(unused[0], 100)
    what = (
        f"{len(unused)} weights of the files are left out, such as {first}"
        if len(unused) > 1
        else f"1 weight of the files is left out: {first}"
    )
    return (f"{what}: config.json describes a model without. Give the one that belongs to the weights.",)


@dataclass(frozen=True)
class ModelSizes:
    """What of a language model decides how much of a text is computed at once.

    Attributes:
        positions: the greatest context: those of the model, in whole blocks of the state.
        hidden: elements of a row between layers.
        quantised: whether weights are quantised in the files.
    """

    positions: int
    hidden: int
    quantised: bool


def sizes_of(path: Path) -> ModelSizes:
    """Look at a language model without reading its weights.

    Raises:
        ModelFileError, ImportFailed, OSError: see `import_decoder`.
    """
    read = _read(Path(path))
    description, _ = describe(read.config, read.weights)
    return ModelSizes(description.positions // BLOCK * BLOCK, description.hidden, bool(read.bits))


def _read(path: Path) -> ModelFolder:
    return read_gguf(path) if language_format(path) == "gguf" else read_folder(path)


def _signature(description: DecoderDescription) -> Signature:
    return Signature(
        (TensorSpec("tokens", (1,), "int32"), TensorSpec("position", (1,), "int32")),
        (TensorSpec("logits", (1, description.vocabulary), "float32"),),
    )


def _check_context(
    folder: ModelFolder, description: DecoderDescription, context: int, chunk: int, sequences: int
) -> None:
    name = folder.name
    if description.positions < BLOCK:
        raise ShapeError(
            f"{name}: the model has {description.positions} positions, a context has {BLOCK} at least: "
            "give a model with more"
        )
    if context < BLOCK or context % BLOCK:
        raise ShapeError(f"{name}: a context of {context} tokens: give a multiple of {BLOCK}")
    if context > description.positions:
        most = description.positions // BLOCK * BLOCK
        raise ShapeError(
            f"{name}: a context of {context} tokens, the model has {description.positions} positions: "
            f"give at most {most}"
        )
    if not 1 <= chunk <= context:
        raise ShapeError(f"{name}: a chunk of {chunk} tokens: give 1 to {context}")
    elements = sequences * context * description.key_heads * description.head_size
    if 2 * len(description.layers) * elements * 4 > LIMITS.bundle.file_bytes:
        each = f" in each of {sequences} texts" if sequences > 1 else ""
        raise ShapeError(
            f"{name}: the state of {context} tokens{each} takes more than "
            f"{LIMITS.bundle.file_bytes / 2**30:.0f} GiB: give a smaller context"
        )


def _check_long_chunk(folder: ModelFolder, context: int, chunk: int, long_chunk: int) -> None:
    """Of fewer tokens a context has no room for the prompt that verifies it."""
    if long_chunk and not (long_chunk > chunk and long_chunk % chunk == 0 and 4 * long_chunk <= context):
        raise ShapeError(
            f"{folder.name}: a long chunk of {long_chunk} tokens: give a multiple of {chunk} above it, up to "
            f"a quarter of the context of {context}, or 0"
        )
