"""A whole import: golden cases of transformers in a process of its own, the state and the second entry."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tvm import relax
from tvm.ir import GenericConst

import host
from host.errors import EngineError, UserError
from host.importers.decoders.golden import Functions
from host.importers.decoders.importer import import_decoder
from host.importers.decoders.reference import Answers, Judgement, Questions, reference_logits
from host.lowering import lower
from host.model import ImportedModel
from tests.decoders.operations import Machine, empty_state
from tests.tiny_tokenizer import write_tokenizer
from tests.unit.importers.decoders.models import llama, llama_weights, write
from tests.unit.lowering.harness import board

FIELDS = {"eos_token_id": [2, 3, 999], "tie_word_embeddings": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    # As of a trained model: no more than unit variance from product to product.
    weights = {name: value / (10 if value.ndim == 2 else 1) for name, value in llama_weights().items()}
    write(path, llama(architectures=["LlamaForCausalLM"], **FIELDS), weights)
    write_tokenizer(path / "tokenizer.json")
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> ImportedModel:
    return import_decoder(folder, 32, 8, "int4", seed=3)


def answers_of(value: float, vocabulary: int) -> Callable[..., Answers]:
    """In place of transformers: logits that are all alike."""
    return lambda folder, asked, parts: Answers(
        tuple(np.full((len(tokens), vocabulary), value, np.float32) for tokens in asked.texts)
    )


def test_tokens_that_the_model_does_not_have_are_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host.importers.decoders.golden.reference_answers", answers_of(1.0, 128))
    other = shutil.copytree(folder, tmp_path / "other")
    lines: list[str] = []
    for last, told in ((127, []), (128, ["The tokenizer has 129 tokens and the model 128: prompts with"])):
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"]["end"] = last
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        import_decoder(other, 32, 8, notice=lines.append)
        assert len(lines) == len(told) and all(map(str.startswith, lines, told))


def test_weights_that_the_configuration_has_no_place_for_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer layers in config.json than in the files make another model."""
    monkeypatch.setattr("host.importers.decoders.golden.reference_answers", answers_of(1.0, 128))
    name, lines = "model.layers.0.self_attn.rotary_emb.inv_freq", list[str]()
    tables = {name: np.ones(8, np.float32), "model.ids": np.zeros((1, 1, 8), np.int64)}
    tables["model.layers.0.mlp.up_proj.bias"] = np.zeros(96, np.float32)
    write(tmp_path / "same", llama(**FIELDS), {**llama_weights(), **tables})
    import_decoder(tmp_path / "same", 32, 8, notice=lines.append)
    assert all("left out" not in line for line in lines)
    write(tmp_path / "less", llama(**FIELDS, num_hidden_layers=1), llama_weights())
    import_decoder(tmp_path / "less", 32, 8, notice=lines.append)
    assert lines[-1].startswith("9 weights of the files are left out, such as model.layers.1.")
    biased = {**llama_weights(), "model.layers.0.mlp.up_proj.bias": np.ones(96, np.float32)}
    write(tmp_path / "biased", llama(**FIELDS), biased)
    import_decoder(tmp_path / "biased", 32, 8, notice=lines.append)
    assert lines[-1].startswith("1 weight of the files is left out: model.layers.0.mlp.up_proj.bias: ")


def test_the_model_says_what_it_is(folder: Path, model: ImportedModel) -> None:
    assert (model.name, model.format, model.path) == ("tiny", "transformers", folder)
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.signature.inputs] == [
        ("tokens", (1,), "int32"),
        ("position", (1,), "int32"),
    ]
    assert [(spec.name, spec.shape) for spec in model.signature.outputs] == [("logits", (1, 128))]
    assert [(spec.name, spec.shape) for spec in model.state] == [
        ("key_0", (2, 2, 16, 16)),
        ("value_0", (2, 32, 16)),
        ("key_1", (2, 2, 16, 16)),
        ("value_1", (2, 32, 16)),
    ]
    decoder = model.decoder
    assert decoder is not None and (decoder.context, decoder.chunk, decoder.vocabulary) == (32, 8, 128)
    # A token beyond the vocabulary never comes.
    assert decoder.end_tokens == (2, 3) and decoder.tokenizer == folder / "tokenizer.json"
    with safe_open(folder / "model.safetensors", "np") as file:
        assert model.parameters == sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118
    assert [parameter.name for parameter in decoder.prefill["main"].params] == [
        "tokens",
        "position",
        "last",
        *(spec.name for spec in model.state),
    ]


def test_golden_cases_are_steps_and_what_generating_calls(folder: Path) -> None:
    model = import_decoder(folder, 32, 8, "int4", verified=3, sequences=2)
    known = model.golden[:40]
    assert not any(case.function for case in known)
    assert [int(case.inputs[1][0]) for case in known] == [*range(24), *range(8), *range(8)]
    begins = [int(case.inputs[0][0]) for case in known if not case.inputs[1][0]]
    assert len(set(begins)) == 3
    assert all(case.spread >= 5e-3 for case in model.golden)
    decoder = model.decoder
    assert decoder is not None and decoder.rounding == 8
    # A chunk, a part of one, a draft, steps, and two texts of which one begins a call later.
    called = [case.function for case in model.golden[40:]]
    assert called == ["prefill", "prefill", "", "", "verify", "", "", *["together"] * 5]
    assert [case.inputs[1].tolist() for case in model.golden[-2:]] == [[3, 2], [4, 3]]
    states = [empty_state(model.state) for _ in range(2)]
    machines = {
        "": Machine(model.module, states[0]),
        "prefill": Machine(decoder.prefill, states[0]),
        "verify": Machine(decoder.verify, states[0]),
        "together": Machine(decoder.together, [*states[0], *states[1]]),
    }
    for place, case in enumerate(model.golden):
        made = machines[case.function].run(*case.inputs)
        for wanted in case.outputs:
            assert wanted.shape == made.shape and wanted.dtype == np.float32
            # Keys and values are in half precision, and the prompt is rounded to bytes.
            allowed = 1e-2 if 40 <= place < 47 else 1e-3
            assert np.abs(made - wanted).max() < allowed * np.abs(wanted).max(), place


@pytest.mark.parametrize(("context", "chunk"), [(16, 16), (48, 64), (2048, 64)])
def test_what_generating_calls_has_places(context: int, chunk: int) -> None:
    functions = Functions(context, min(chunk, context), 4)
    begins = np.cumsum([0, *functions.chunks[:-1]])
    assert all(begin + functions.chunk <= context for begin in begins)
    assert functions.tokens <= context and functions.tokens - sum(functions.chunks) == 8
    assert all(1 <= count <= functions.chunk for count in functions.chunks)


def test_both_modules_share_their_constants(model: ImportedModel) -> None:
    assert model.decoder is not None
    found = []
    for module in (model.module, model.decoder.prefill):
        seen: set[int] = set()

        def visit(node: object, seen: set[int] = seen) -> None:
            if isinstance(node, GenericConst) and len(node.value.shape) == 2:
                seen.add(np.from_dlpack(node.value).ctypes.data)

        relax.analysis.post_order_visit(module["main"], visit)
        found.append(seen)
    # A rounded prompt ends at the keys and values of the last layer.
    assert model.decoder.rounding and found[1] < found[0] and len(found[1]) > 10


def test_the_hash_is_of_content_and_options(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host.importers.decoders.golden.reference_answers", answers_of(1.0, 128))
    options = [(32, 8, ""), (48, 8, ""), (32, 16, ""), (32, 8, "int8"), (32, 8, "int4")]
    hashes = [import_decoder(folder, *one).content_hash for one in options]
    assert len(set(hashes)) == len(options)
    assert import_decoder(folder, 32, 8).content_hash == hashes[0]
    assert import_decoder(folder, 32, 8).golden[0].spread == 0.0
    other = write(tmp_path, json.loads((folder / "config.json").read_text()), llama_weights())
    assert import_decoder(other, 32, 8).content_hash != hashes[0]


def test_logits_that_say_nothing_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in (answers_of(np.nan, 128), answers_of(1.0, 127)):
        monkeypatch.setattr("host.importers.decoders.golden.reference_answers", bad)
        with pytest.raises(EngineError, match="not finite"):
            import_decoder(folder, 32, 8)


def test_the_process_of_the_reference_loads_no_compiler() -> None:
    code = "import sys; import host.importers.decoders.reference.child; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(host.__file__).parents[1]).returncode == 0


def test_a_model_that_transformers_refuses_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, llama(model_type="none"), llama_weights())
    with pytest.raises(EngineError, match=r"transformers cannot run it: .*: give a model that") as error:
        reference_logits(tmp_path, np.zeros(1, np.int32), ())
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_kernels_of_a_language_model_have_the_names_of_its_weights(model: ImportedModel) -> None:
    tasks = lower(model, board()).tasks
    names = {layer.name: layer.operator for task in tasks for layer in task.layers}
    assert names["model.layers.1.self_attn.q_proj, k_proj, v_proj"] == "product"
    assert names["model.layers.0.self_attn"] == "attention"
    assert names["model.layers.1.mlp"] == "silu" and names["model.norm"] == "normalisation"
    assert {"model.embed_tokens", "lm_head"} <= names.keys()
    # Both entries are of the same layers.
    positions = [layer.position for task in tasks for layer in task.layers]
    assert len(set(positions)) == len(names)


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
    import_decoder(folder, 32, 8, "int4", cache="int8", notice=lines.append)
    assert lines[3].endswith("rounding. Deploy it without --cache int8")


def test_a_model_with_sharp_attention_is_deployed_with_quantised_weights(tmp_path: Path) -> None:
    """In half precision, keys and values move its logits by more than a verification allows."""
    write(tmp_path, llama(architectures=["LlamaForCausalLM"], **FIELDS), llama_weights())
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
    machine = Machine(model.module, empty_state(model.state))
    moved = 0.0
    for case, other in zip(model.golden[:24], usual.golden[:24], strict=True):
        [wanted], [plain] = case.outputs, other.outputs
        assert np.abs(machine.run(*case.inputs) - wanted).max() < 1e-3 * np.abs(wanted).max()
        moved = max(moved, float(np.abs(plain - wanted).max() / np.abs(wanted).max()))
    assert 3e-3 < moved < 0.1
