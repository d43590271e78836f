"""A model as an importer reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from host.model.quantisation import Quantisation
from host.model.signature import GoldenCase, Signature, TensorSpec
from host.model.text_quality import TextReference

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True, eq=False)
class Decoder:
    """What a language model has beside `main`, which takes one token and gives the logits of the next one.

    Attributes:
        context: tokens that the state has places for, C.
        chunk: tokens of one call of `prefill`, P.
        vocabulary: logits of a step, V.
        end_tokens: tokens that end a text.
        prefill: relax IRModule whose `main` takes tokens (P) int32, the position of the first (1) int32, the
            row whose logits are wanted (1) int32, and then the state; it gives logits (1, V) float32, or with
            `rounding` what is not to be used: a chunk is for its keys and values then.
        tokenizer: a `tokenizer.json`, or the content of one; None where the model came without one.
        verified: tokens of one call of `verify`, S; 0 without.
        verify: relax IRModule whose `main` takes tokens (S) int32, the position of the first (1) int32, and
            then the state; it gives the logits behind each token, (S, V) float32. None without.
        sequences: texts that the state has places for, N: the model's `state` is that of one of them.
        together: relax IRModule whose `main` takes a token of each text, tokens (N) int32, their positions
            (N) int32, and then the states of all texts; it gives the logits behind each token, (N, V)
            float32. None where there is one text.
        rounding: 8 where `prefill` rounds activations of products with quantised weights to 8 bits on
            processors that multiply bytes; 0 where it does as a step.
        step_bytes: of matrices that a step multiplies with, as the bundle stores them.
        chat: content of the bundle's file of chat templates; None where the model came without one.
        single: whether tensors between kernels stay in single precision where the model's lie in halves.
        long_chunk: tokens of one call of `long_prefill`, more than `chunk`; 0 without.
        long_prefill: as `prefill`, of so many tokens. None without.
    """

    context: int
    chunk: int
    vocabulary: int
    end_tokens: tuple[int, ...]
    prefill: tvm.IRModule
    tokenizer: Path | bytes | None
    verified: int = 0
    verify: tvm.IRModule | None = None
    sequences: int = 1
    together: tvm.IRModule | None = None
    rounding: int = 0
    step_bytes: int = 0
    chat: bytes | None = None
    single: bool = False
    long_chunk: int = 0
    long_prefill: tvm.IRModule | None = None


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model file, read.

    Attributes:
        name: file name without suffix.
        format: "onnx", "pt2" or "tflite".
        path: a file with all shapes pinned that the original runtime can run.
        signature: inputs and outputs.
        module: relax IRModule whose `main` takes the signature's inputs, weights bound as constants;
            None if it cannot be expressed (`reason`, `operator` say why).
        golden: cases from the original runtime; of a model with state, in the order in which they run.
        content_hash: SHA-256 of the file and the pinned shapes.
        state: tensors that `main` takes behind the inputs, reads and changes: zeros when the model is loaded,
            kept from call to call.
        decoder: of a language model; None of others.
        quantisation: how the file was quantised here; None if it was not.
        text: what transformers makes of a text of the user's; None without one, and of other models.
        parameters: numbers that the file has for its weights; None where they were not counted.
    """

    name: str
    format: str
    path: Path
    signature: Signature
    module: tvm.IRModule | None
    golden: tuple[GoldenCase, ...]
    content_hash: str
    reason: str = ""
    operator: str | None = None
    state: tuple[TensorSpec, ...] = ()
    decoder: Decoder | None = None
    quantisation: Quantisation | None = None
    text: TextReference | None = None
    parameters: int | None = None
