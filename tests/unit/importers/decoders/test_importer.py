"""A whole import: golden cases of transformers in a process of its own, the state and the second entry."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tvm import relax
from tvm.ir import GenericConst

import host
from host.errors import EngineError
from host.importers.decoders.golden import Functions
from host.importers.decoders.importer import import_decoder
from host.importers.decoders.reference import Answers, reference_logits
from host.lowering import lower
from host.lowering.quantised.layout import WeightLayout
from host.model import ImportedModel
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import OWN_HEAD, llama, llama_weights, trained_folder, write
from tests.unit.lowering.harness import board


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_folder(tmp_path_factory.mktemp("models") / "tiny")


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
    write(tmp_path / "same", llama(**OWN_HEAD), {**llama_weights(), **tables})
    import_decoder(tmp_path / "same", 32, 8, notice=lines.append)
    assert all("left out" not in line for line in lines)
    write(tmp_path / "less", llama(**OWN_HEAD, num_hidden_layers=1), llama_weights())
    import_decoder(tmp_path / "less", 32, 8, notice=lines.append)
    assert lines[-1].startswith("9 weights of the files are left out, such as model.layers.1.")
    biased = {**llama_weights(), "model.layers.0.mlp.up_proj.bias": np.ones(96, np.float32)}
    write(tmp_path / "biased", llama(**OWN_HEAD), biased)
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


def test_weights_are_packed_once_for_all_functions(
    model: ImportedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    packed = WeightLayout.packed

    def counted(self: WeightLayout, weight: np.ndarray) -> np.ndarray:
        calls.append(weight.size)
        return packed(self, weight)

    monkeypatch.setattr(WeightLayout, "packed", counted)
    alone = lower(dataclasses.replace(model, decoder=None), board())
    count = len(calls)
    several = lower(model, board())
    # The prefill takes none that the step has not.
    assert several.entries == ("prefill",) and len(calls) == 2 * count > 8
    sizes = [sum(array.nbytes for array in one.parameters) for one in (alone, several)]
    assert 0 <= sizes[1] - sizes[0] < 1000


def test_a_long_chunk_is_a_function_of_its_own_and_has_a_golden_case(folder: Path) -> None:
    model = import_decoder(folder, 64, 8, "int4", verified=3, long_chunk=16)
    decoder = model.decoder
    assert decoder is not None and decoder.long_chunk == 16 and decoder.long_prefill is not None
    assert int(decoder.long_prefill["main"].params[0].ty.shape[0]) == 16
    beside = [case for case in model.golden if case.function]
    assert [case.function for case in beside] == ["prefill", "prefill", "long_prefill", "verify"]
    # Before it are a whole chunk and three eighths of one, and steps that show what these have left.
    assert [one.tolist() for one in beside[2].inputs[1:]] == [[13], [15]]
    names = [case.function for case in model.golden[40:]]
    assert names[:5] == ["prefill", "prefill", "", "", "long_prefill"]
    state = empty_state(model.state)
    machines = {
        "": Machine(model.module, state),
        "prefill": Machine(decoder.prefill, state),
        "long_prefill": Machine(decoder.long_prefill, state),
        "verify": Machine(decoder.verify, state),
    }
    seen = 0
    for case in model.golden[40:]:
        made = machines[case.function].run(*case.inputs)
        for wanted in case.outputs:
            seen += 1
            assert np.abs(made - wanted).max() < 1e-2 * np.abs(wanted).max()
    assert seen >= 5
    lowered = lower(model, board())
    assert lowered.entries == ("prefill", "verify", "long_prefill")
    short = dataclasses.replace(model, decoder=dataclasses.replace(decoder, long_prefill=None))
    without = lower(short, board())
    # Weights are there once, and the kernels of the other functions are the same.
    sizes = [sum(array.nbytes for array in one.parameters) for one in (without, lowered)]
    assert 0 <= sizes[1] - sizes[0] < 1000 < sizes[0] and len(lowered.tasks) > len(without.tasks)
    hashes = {task.name: task.workload_hash for task in lowered.tasks}
    assert all(hashes[task.name] == task.workload_hash for task in without.tasks)


@pytest.mark.parametrize(
    ("context", "chunk", "long_chunk"),
    [(16, 16, 0), (48, 64, 0), (2048, 64, 0), (64, 8, 16), (1024, 128, 256), (2048, 128, 512)],
)
def test_what_generating_calls_has_places(context: int, chunk: int, long_chunk: int) -> None:
    functions = Functions(context, min(chunk, context), 4, long_chunk=long_chunk)
    counts = [count for _, _, count in functions.chunks]
    begins = np.cumsum([0, *counts[:-1]])
    for begin, (function, size, count) in zip(begins, functions.chunks, strict=True):
        assert size == {"prefill": functions.chunk, "long_prefill": long_chunk}[function]
        assert begin + size <= context and 1 <= count <= size
    # A draft, and steps behind each function that may give no logits.
    others = functions.tokens - sum(counts)
    assert functions.tokens <= context and others == (10 if long_chunk else 8)
    # All rows of a long chunk are judged.
    assert [count for function, _, count in functions.chunks if function == "long_prefill"] == [
        *([long_chunk] if long_chunk else [])
    ]


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
    lengths = [import_decoder(folder, 64, 8, long_chunk=size).content_hash for size in (0, 16)]
    assert len({*lengths, import_decoder(folder, 64, 8).content_hash}) == 2
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
