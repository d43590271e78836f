"""A language model of two kernels, whose next token is known without running it.

The state holds the tokens so far. The next token is the sum of all of them, each times one more than its
position, and of a constant, modulo the vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.script import tirx as T

from host.model import Decoder, GoldenCase, ImportedModel, Signature, TensorSpec

CONTEXT, CHUNK, LONG_CHUNK, VERIFIED, VOCABULARY, TEXTS = 32, 4, 8, 3, 13, 3
END = 12
ADDED = 5
SIGNATURE = Signature(
    (TensorSpec("tokens", (1,), "int32"), TensorSpec("position", (1,), "int32")),
    (TensorSpec("logits", (1, VOCABULARY), "float32"),),
)
PREFILL_INPUTS = (
    TensorSpec("tokens", (CHUNK,), "int32"),
    TensorSpec("position", (1,), "int32"),
    TensorSpec("last", (1,), "int32"),
)
LONG_PREFILL_INPUTS = (TensorSpec("tokens", (LONG_CHUNK,), "int32"), *PREFILL_INPUTS[1:])
VERIFY_INPUTS = (TensorSpec("tokens", (VERIFIED,), "int32"), TensorSpec("position", (1,), "int32"))
TOGETHER_INPUTS = tuple(TensorSpec(name, (TEXTS,), "int32") for name in ("tokens", "positions"))
STATE = (TensorSpec("seen", (CONTEXT,), "float32"),)


def next_token(tokens: Sequence[int]) -> int:
    """The most likely token behind some tokens."""
    return (sum((place + 1) * token for place, token in enumerate(tokens)) + ADDED) % VOCABULARY


def following(prompt: Sequence[int], count: int) -> list[int]:
    """The most likely tokens behind a prompt."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def logits(tokens: Sequence[int]) -> np.ndarray:
    """What the model gives behind some tokens: 0 for the most likely one, less for those that are far off."""
    return -np.abs(np.arange(VOCABULARY) - next_token(tokens)).astype("float32")[None]


@T.prim_func(s_tir=True)
def step(
    tokens: T.Buffer((1,), "int32"),
    position: T.Buffer((1,), "int32"),
    seen: T.Buffer((CONTEXT,), "float32"),
    added: T.Buffer((1,), "float32"),
    summed: T.Buffer((1,), "float32"),
) -> None:
    T.func_attr({"tirx.noalias": True})
    with T.sblock("step"):
        T.reads(tokens[0], position[0], seen[0:CONTEXT], added[0])
        T.writes(seen[0:CONTEXT], summed[0])
        seen[position[0]] = T.cast(tokens[0], "float32")
        summed[0] = added[0]
        for i in range(CONTEXT):
            if i <= position[0]:
                summed[0] = summed[0] + seen[i] * T.cast(i + 1, "float32")


def chunk_function(spoilt: float, size: int = CHUNK) -> tvm.tirx.PrimFunc:
    """Several tokens at once; what is kept of the first is off by `spoilt`, which the logits do not show."""

    @T.prim_func(s_tir=True)
    def steps(
        tokens: T.Buffer((size,), "int32"),
        position: T.Buffer((1,), "int32"),
        last: T.Buffer((1,), "int32"),
        seen: T.Buffer((CONTEXT,), "float32"),
        added: T.Buffer((1,), "float32"),
        summed: T.Buffer((1,), "float32"),
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        with T.sblock("steps"):
            T.reads(tokens[0:size], position[0], last[0], seen[0:CONTEXT], added[0])
            T.writes(seen[0:CONTEXT], summed[0])
            for t in range(size):
                seen[position[0] + t] = T.cast(tokens[t], "float32")
            summed[0] = added[0]
            for i in range(CONTEXT):
                if i <= position[0] + last[0]:
                    summed[0] = summed[0] + seen[i] * T.cast(i + 1, "float32")
            seen[position[0]] = seen[position[0]] + T.float32(spoilt)

    return steps


steps, forgetful_steps = chunk_function(0.0), chunk_function(1.0)
long_steps, forgetful_long_steps = chunk_function(0.0, LONG_CHUNK), chunk_function(2.0, LONG_CHUNK)


@T.prim_func(s_tir=True)
def score(summed: T.Buffer((1,), "float32"), out: T.Buffer((1, VOCABULARY), "float32")) -> None:
    T.func_attr({"tirx.noalias": True})
    for i in range(VOCABULARY):
        with T.sblock("score"):
            v = T.axis.spatial(VOCABULARY, i)
            T.reads(summed[0])
            T.writes(out[0, v])
            out[0, v] = -T.fabs(
                T.cast(v, "float32") - T.cast(T.cast(summed[0], "int32") % VOCABULARY, "float32")
            )


@T.prim_func(s_tir=True)
def verify(
    tokens: T.Buffer((VERIFIED,), "int32"),
    position: T.Buffer((1,), "int32"),
    seen: T.Buffer((CONTEXT,), "float32"),
    added: T.Buffer((1,), "float32"),
    summed: T.Buffer((VERIFIED,), "float32"),
) -> None:
    T.func_attr({"tirx.noalias": True})
    with T.sblock("verify"):
        T.reads(tokens[0:VERIFIED], position[0], seen[0:CONTEXT], added[0])
        T.writes(seen[0:CONTEXT], summed[0:VERIFIED])
        for t in range(VERIFIED):
            seen[position[0] + t] = T.cast(tokens[t], "float32")
        for t in range(VERIFIED):
            summed[t] = added[0]
            for i in range(CONTEXT):
                if i <= position[0] + t:
                    summed[t] = summed[t] + seen[i] * T.cast(i + 1, "float32")


@T.prim_func(s_tir=True)
def together(
    tokens: T.Buffer((TEXTS,), "int32"),
    positions: T.Buffer((TEXTS,), "int32"),
    first: T.Buffer((CONTEXT,), "float32"),
    second: T.Buffer((CONTEXT,), "float32"),
    third: T.Buffer((CONTEXT,), "float32"),
    added: T.Buffer((1,), "float32"),
    summed: T.Buffer((TEXTS,), "float32"),
) -> None:
    T.func_attr({"tirx.noalias": True})
    with T.sblock("together"):
        T.reads(tokens[0:TEXTS], positions[0:TEXTS], added[0])
        T.writes(first[0:CONTEXT], second[0:CONTEXT], third[0:CONTEXT], summed[0:TEXTS])
        first[positions[0]] = T.cast(tokens[0], "float32")
        second[positions[1]] = T.cast(tokens[1], "float32")
        third[positions[2]] = T.cast(tokens[2], "float32")
        for t in range(TEXTS):
            summed[t] = added[0]
        for i in range(CONTEXT):
            if i <= positions[0]:
                summed[0] = summed[0] + first[i] * T.cast(i + 1, "float32")
            if i <= positions[1]:
                summed[1] = summed[1] + second[i] * T.cast(i + 1, "float32")
            if i <= positions[2]:
                summed[2] = summed[2] + third[i] * T.cast(i + 1, "float32")


@T.prim_func(s_tir=True)
def score_rows(
    summed: T.Buffer((VERIFIED,), "float32"), out: T.Buffer((VERIFIED, VOCABULARY), "float32")
) -> None:
    T.func_attr({"tirx.noalias": True})
    for r, i in T.grid(VERIFIED, VOCABULARY):
        with T.sblock("score"):
            vr, v = T.axis.remap("SS", [r, i])
            T.reads(summed[vr])
            T.writes(out[vr, v])
            out[vr, v] = -T.fabs(
                T.cast(v, "float32") - T.cast(T.cast(summed[vr], "int32") % VOCABULARY, "float32")
            )


def module(
    function: tvm.tirx.PrimFunc,
    name: str,
    inputs: Sequence[TensorSpec],
    constant: int = ADDED,
    scorer: tvm.tirx.PrimFunc = score,
    rows: int = 1,
    state: Sequence[TensorSpec] = STATE,
) -> tvm.IRModule:
    """One entry: `function`, under a name, on inputs, the state and the constant, and then a scorer."""
    function = function.with_attr("global_symbol", name)
    builder = relax.BlockBuilder()
    variables = [relax.Var(one.name, relax.TensorType(one.shape, one.dtype)) for one in (*inputs, *state)]
    with builder.function("main", variables):
        with builder.dataflow():
            kernel, scoring = builder.add_func(function, name), builder.add_func(scorer, "score")
            added = relax.const(np.array([constant], "float32"))
            summed = builder.emit(
                relax.call_tir(kernel, [*variables, added], relax.TensorType((rows,), "float32"))
            )
            result = builder.emit_output(
                relax.call_tir(scoring, [summed], relax.TensorType((rows, VOCABULARY), "float32"))
            )
        builder.emit_func_output(result)
    return builder.get()


def golden(prompt: Sequence[int]) -> tuple[GoldenCase, ...]:
    """A case for each token of a prompt."""
    return tuple(
        GoldenCase((np.array([token], "int32"), np.array([place], "int32")), (logits(prompt[: place + 1]),))
        for place, token in enumerate(prompt)
    )


def function_cases() -> tuple[GoldenCase, ...]:
    """Cases of the functions beside main, with steps behind them: of a model with several texts."""

    def numbers(*values: int) -> np.ndarray:
        return np.array(values, "int32")

    def rows(*texts: Sequence[int]) -> np.ndarray:
        return np.concatenate([logits(text) for text in texts])

    text = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    return (
        GoldenCase((numbers(3, 1, 4, 0), numbers(0), numbers(2)), (rows(text[:3]),), function="prefill"),
        GoldenCase((numbers(1), numbers(3)), (rows(text[:4]),)),
        GoldenCase((numbers(5, 9, 2), numbers(4)), (rows(text[:5], text[:6], text[:7]),), function="verify"),
        GoldenCase((numbers(6), numbers(7)), (rows(text[:8]),)),
        GoldenCase((numbers(5, 7, 8), numbers(8, 0, 0)), (rows(text, [7], [8]),), function="together"),
        GoldenCase(
            (numbers(1, 2, 3), numbers(9, 1, 1)), (rows([*text, 1], [7, 2], [8, 3]),), function="together"
        ),
    )


def long_cases() -> tuple[GoldenCase, ...]:
    """Cases of the function with longer chunks, with a step behind them."""
    text = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    tokens, place, last = (np.array(one, "int32") for one in (text[:LONG_CHUNK], [0], [LONG_CHUNK - 1]))
    step_inputs = (np.array(text[LONG_CHUNK:], "int32"), np.array([LONG_CHUNK], "int32"))
    return (
        GoldenCase((tokens, place, last), (logits(text[:LONG_CHUNK]),), function="long_prefill"),
        GoldenCase(step_inputs, (logits(text),)),
    )


def imported(
    tokenizer: Path | None = None,
    name: str = "tiny",
    *,
    several: bool = False,
    prefilling: tvm.tirx.PrimFunc = steps,
    long_prefilling: tvm.tirx.PrimFunc | None = None,
) -> ImportedModel:
    """The model as an importer would hand it over; with `TEXTS` states where there are several.

    It has chunks of `LONG_CHUNK` tokens too where `long_prefilling` computes them.
    """
    prefill = module(prefilling, "steps", PREFILL_INPUTS)
    verifying = module(verify, "verified", VERIFY_INPUTS, scorer=score_rows, rows=VERIFIED)
    states = [TensorSpec(f"seen_{text}", (CONTEXT,), "float32") for text in range(TEXTS)]
    stepping = module(together, "stepped", TOGETHER_INPUTS, scorer=score_rows, rows=TEXTS, state=states)
    decoder = Decoder(CONTEXT, CHUNK, VOCABULARY, (END,), prefill, tokenizer, VERIFIED, verifying)
    if several:
        decoder = dataclasses.replace(decoder, sequences=TEXTS, together=stepping)
    if long_prefilling is not None:
        longer = module(long_prefilling, "long_steps", LONG_PREFILL_INPUTS)
        decoder = dataclasses.replace(decoder, long_chunk=LONG_CHUNK, long_prefill=longer)
    return ImportedModel(
        name=name,
        format="transformers",
        path=Path(name),
        signature=SIGNATURE,
        module=module(step, "step", SIGNATURE.inputs),
        golden=golden((3, 1, 4, 1)),
        content_hash="0" * 64,
        state=STATE,
        decoder=decoder,
    )
