"""What of an import keeps its precision: parts of prompts, keys and values, all between kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest

from host.errors import UserError
from host.importers.decoders.importer import import_decoder
from host.importers.decoders.reference import Answers, Judgement, Questions
from host.lowering import lower
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import llama, llama_weights, trained_folder, write
from tests.unit.lowering.harness import board


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_folder(tmp_path_factory.mktemp("models") / "tiny")


def rounded_call(module: object) -> bool:
    return '\\"rounding\\": 8' in str(module) or '"rounding": 8' in str(module)


def judging(left_out: Collection[str], asked: list[Questions], left: float = 5e-3) -> Callable[..., Answers]:
    """In place of transformers: logits that are all alike, and parts of some kinds or names left exact."""

    def answers(path: Path, questions: Questions, parts: object) -> Answers:
        asked.append(questions)
        exact = tuple(np.ones((len(tokens), 128), np.float32) for tokens in questions.texts)
        assert questions.judged is not None
        found = questions.judged.parts
        rounded = [n for n, one in enumerate(found) if one.kind not in left_out and one.name not in left_out]
        return Answers(exact, judgement=Judgement(tuple(rounded), 0.025 if left_out else left, left))

    return answers


@pytest.mark.parametrize(
    ("left_out", "line"),
    [
        ((), ""),
        (("scores",), "in prompts, products that make queries and keys keep their precision"),
        (("attention",), "in prompts, attention keep their precision"),
        (("products of layer 0",), "in prompts, products of layer 0 keep their precision"),
        (("cache", "attention"), "keys and values are kept in float32; in prompts, attention keep their"),
        (
            ("products", "scores", "attention"),
            "activations of prompts keep 16 bits: with all of it rounded, ",
        ),
    ],
)
def test_prompts_are_rounded_where_logits_stay(
    left_out: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    asked: list[Questions] = []
    monkeypatch.setattr("host.importers.decoders.golden.reference_answers", judging(left_out, asked))
    lines: list[str] = []
    model = import_decoder(folder, 32, 8, "int4", notice=lines.append, bfloat16=True, tiles=True, verified=3)
    judged = asked[0].judged
    assert judged is not None and judged.tiles and judged.texts.shape == (3, 32)
    kinds = ["products", "products", "scores", "attention", "cache"]
    assert [one.kind for one in judged.parts] == kinds
    # Values stay as they are.
    names = [name for one in judged.parts for name in one.products]
    assert len(names) == len(set(names)) == 12 and not any("v_proj" in name for name in names)
    assert sorted(judged.parts[2].products) == sorted(
        f"model.layers.{layer}.self_attn.{name}_proj.weight" for layer in range(2) for name in "kq"
    )
    assert [one for one in lines if "logits could move by 2.5e-02" in one] == [
        one for one in lines if line and line in one
    ]
    assert len(lines) == bool(line)
    assert model.decoder is not None
    prefill, rounds = model.decoder.prefill, "products" not in left_out
    assert model.decoder.rounding == (8 if rounds else 0)
    # Output, gate with up, and down of each layer; queries with keys.
    calls = [one for one in str(prefill).splitlines() if rounded_call(one)]
    expected = 3 * ((2 if rounds else 0) - ("products of layer 0" in left_out))
    # Nothing behind the last layer's attention is computed for keys and values alone.
    expected -= 3 if rounds else 0
    assert len(calls) == expected + (2 if "scores" not in left_out else 0)
    assert not rounded_call(model.module) and not rounded_call(model.decoder.verify)
    # Its attention may round too, and no other function's.
    assert ('\\"rounded\\": true' in str(prefill)) is ("attention" not in left_out)
    assert '\\"rounded\\": true' not in str(model.module)
    assert ('\\"first\\"' in str(prefill)) is ("scores" not in left_out)
    assert {spec.dtype for spec in model.state} == {"float32" if "cache" in left_out else "float16"}
    # Nobody uses logits of a prompt that is rounded: steps follow before anything else.
    called = [(case.function, len(case.outputs)) for case in model.golden[40:43]]
    after = [("", 1)] if rounds else [("verify", 1)]
    assert called == [("prefill", 0 if rounds else 1)] * 2 + after


def test_what_targets_gain_nothing_by_is_not_judged(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    asked: list[Questions] = []
    monkeypatch.setattr("host.importers.decoders.golden.reference_answers", judging((), asked))
    import_decoder(folder, 32, 8, "int4", cache="int8")
    judged = asked[0].judged
    assert judged is not None and not judged.tiles
    assert {one.kind for one in judged.parts} == {"products", "scores"}
    assert judged.allowed == 1e-2 and asked[0].cached
    # What stays exact costs less where bytes are multiplied, which take two of them for 16 bits.
    import_decoder(folder, 32, 8, "int4", tiles=True)
    assert asked[1].judged is not None
    assert asked[1].judged.parts[0].cost == 2 * judged.parts[0].cost > 0


def test_a_model_that_enlarges_what_steps_round_is_told(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    lines: list[str] = []
    every = ("products", "scores", "attention", "cache")
    monkeypatch.setattr("host.importers.decoders.golden.reference_answers", judging(every, [], left=0.02))
    import_decoder(folder, 32, 8, "int4", notice=lines.append)
    assert len(lines) == 2 and lines[1].startswith(
        "logits can be off by 2.0e-02 of the largest all the same: "
    )
    assert lines[1].endswith("rounding. Deploy it in float32, without --quantize and --dtype")
    # Bytes in place of halves are not what it comes from.
    model = import_decoder(folder, 32, 8, "int4", cache="int8", notice=lines.append)
    assert lines[2].startswith("activations of prompts keep 16 bits") and lines[3:] == lines[1:2]
    assert "int8" in {spec.dtype for spec in model.state}


def test_bytes_that_cannot_be_computed_alike_are_halves(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    asked: list[Questions] = []

    def answers(path: Path, questions: Questions, parts: object) -> Answers:
        left = 0.02 if questions.cached else 5e-3
        return judging((), asked, left)(path, questions, parts)

    monkeypatch.setattr("host.importers.decoders.golden.reference_answers", answers)
    lines: list[str] = []
    model = import_decoder(folder, 32, 8, "int4", cache="int8", notice=lines.append)
    assert {spec.dtype for spec in model.state} == {"float16"} and [one.cached for one in asked] == [
        True,
        False,
    ]
    # Halves may be left out like anything else.
    kinds = [{part.kind for part in one.judged.parts} for one in asked if one.judged is not None]
    assert "cache" not in kinds[0] and "cache" in kinds[1]
    assert [
        line for line in lines if line.startswith("keys and values are kept in half precision: ")
    ] == lines
    assert "logits by 2.0e-02 of the largest" in lines[0]


def test_a_model_with_sharp_attention_is_deployed_with_quantised_weights(tmp_path: Path) -> None:
    """In half precision, keys and values move its logits by more than a verification allows."""
    fields = {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}
    write(tmp_path, llama(**fields), llama_weights())
    model = import_decoder(tmp_path, 32, 8, "int4")
    assert {spec.dtype for spec in model.state} == {"float32"}
    machine = Machine(model.module, empty_state(model.state))
    for case in model.golden[:24]:
        [wanted] = case.outputs
        assert np.abs(machine.run(*case.inputs) - wanted).max() < 3e-3 * np.abs(wanted).max()


def test_in_half_precision_weights_and_state_are_halves_and_stored_once(folder: Path) -> None:
    model = import_decoder(folder, 32, 8, verified=3, sequences=2, half=True)
    assert {one.dtype for one in model.state} == {"float16"}
    assert all(case.spread >= 5e-3 for case in model.golden)
    single = import_decoder(folder, 32, 8, verified=3, sequences=2)
    assert model.content_hash != single.content_hash
    # The reference has the matrices that the program has.
    moved = [
        np.abs(a.outputs[0] - b.outputs[0]).max() for a, b in zip(model.golden, single.golden, strict=True)
    ]
    assert 0 < max(moved) < 0.1 * np.abs(single.golden[0].outputs[0]).max()
    lowered = lower(model, board(), half="float16")
    assert lowered.entries == ("prefill", "verify", "together")
    halves = sum(one.size for one in lowered.parameters if one.dtype == np.float16)
    singles = sum(one.size for one in lowered.parameters if one.dtype == np.float32)
    assert model.parameters is not None
    # All matrices, once for all functions, beside norms and tables.
    assert 0.95 * model.parameters < halves < 1.2 * model.parameters and singles < halves // 20
    with pytest.raises(UserError, match=r"--dtype fp16: .* is quantised: leave --dtype out"):
        import_decoder(folder, 32, 8, "int4", half=True)


def test_what_lies_between_kernels_stays_in_float32_where_halves_move_logits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Questions] = []
    lowered = {}
    for left_out in ((), ("between",)):
        monkeypatch.setattr("host.importers.decoders.golden.reference_answers", judging(left_out, asked))
        lines: list[str] = []
        model = import_decoder(folder, 32, 8, half=True, half_sums=True, notice=lines.append)
        beginning = "on CPUs, what lies between kernels is kept in float32: "
        assert [line.startswith(beginning) for line in lines] == [True] * len(left_out)
        lowered[left_out] = lower(model, board(), half="float16")
        assert {one.dtype for one in model.state} == {"float16"}
    assert asked[0].judged is not None and asked[0].judged.half_sums
    stored = [sum(array.nbytes for array in one.parameters) for one in lowered.values()]
    # What is stored is the same; of what functions write, nothing is in halves.
    calls = [re.findall(r"call_tir.*out_ty=.*", str(one.module["main"])) for one in lowered.values()]
    assert stored[0] == stored[1] and all(len(one) > 20 for one in calls)
    assert [any("float16" in line for line in one) for one in calls] == [True, False]


@pytest.mark.parametrize("quantize", ["", "int4"])
def test_keys_and_values_are_kept_as_bytes(folder: Path, quantize: str) -> None:
    model = import_decoder(folder, 32, 8, quantize, verified=3, sequences=2, cache="int8")
    usual = import_decoder(folder, 32, 8, quantize, verified=3, sequences=2)
    assert model.content_hash != usual.content_hash
    assert [(one.name, one.dtype) for one in model.state[:4]] == [
        ("key_scale_0", "float16"),
        ("value_scale_0", "float16"),
        ("key_0", "int8"),
        ("value_0", "int8"),
    ]
    assert len(model.state) == 2 * len(usual.state)
    # Logits are those of a reference that rounds keys and values, which is another one.
    assert {case.spread for case in model.golden} == {5e-3}
    machine = Machine(model.module, empty_state(model.state))
    moved = 0.0
    for case, other in zip(model.golden[:24], usual.golden[:24], strict=True):
        [wanted], [plain] = case.outputs, other.outputs
        assert np.abs(machine.run(*case.inputs) - wanted).max() < 1e-3 * np.abs(wanted).max()
        moved = max(moved, float(np.abs(plain - wanted).max() / np.abs(wanted).max()))
    assert 3e-3 < moved < 0.1
