"""GPTQ and AWQ folders: every value is kept, and what is not read is refused by name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from host.errors import EdgeError
from host.importers.decoders.folder import read_folder
from host.importers.decoders.importer import import_decoder
from host.importers.decoders.packed.tensor import PackedTensor
from host.importers.decoders.quantise import Form
from host.importers.decoders.reference import model as streamed
from host.importers.decoders.reference import reference_logits
from host.importers.decoders.reference.child import logits_of
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import llama, llama_weights, write

FIELDS = {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False, "hidden_size": 64}
FIRST = "model.layers.0.self_attn.q_proj"
# The column that stands at each place of a word of AWQ.
PLACES = (0, 2, 4, 6, 1, 3, 5, 7)


class Way(NamedTuple):
    """How a folder is quantised."""

    method: str
    bits: int = 4
    group: int = 32
    zero: int | None = 8
    less: int = 0
    ordered: bool = True

    @property
    def config(self) -> dict[str, Any]:
        """The field of config.json."""
        fields = {"quant_method": self.method, "bits": self.bits, "group_size": self.group}
        if self.method == "awq":
            return fields | {"version": "gemm", "zero_point": True}
        kind = "gptq" if self.less else "gptq_v2"
        return fields | {"checkpoint_format": kind, "desc_act": not self.ordered}


def words_of(numbers: np.ndarray, bits: int, *, down: bool, awq: bool = False) -> np.ndarray:
    """Numbers (K, N) in words of 32 bits, one by one: down the rows, or along them."""
    count = 32 // bits
    shape = (
        (numbers.shape[0] // count, numbers.shape[1]) if down else (len(numbers), numbers.shape[1] // count)
    )
    words = np.zeros(shape, np.uint32)
    for (row, column), number in np.ndenumerate(numbers):
        place = (row if down else column) % count
        place = PLACES.index(place) if awq else place
        word = (row // count, column) if down else (row, column // count)
        words[word] |= np.uint32(int(number) << (bits * place))
    return words.view(np.int32)


def made(folder: Path, way: Way, *, tied: bool = False, **changes: Any) -> tuple[Path, dict[str, np.ndarray]]:
    """A packed folder, and its weights in floating point by their usual names.

    With `tied`, the head is packed too, and is the embedding.
    """
    generator, stored, values = np.random.default_rng(4), {}, {}
    for name, weight in llama_weights().items():
        weight = weight if weight.ndim == 1 else weight / 8
        if tied and "embed" in name:
            continue
        if "proj" not in name and not (tied and "lm_head" in name):
            stored[name] = values[name] = weight
            continue
        inputs, outputs = weight.shape[::-1]
        group = inputs if way.group == -1 else way.group
        base, groups = name.removesuffix("weight"), inputs // group
        numbers = generator.integers(0, 1 << way.bits, (inputs, outputs))
        drawn = generator.integers(1, 1 << way.bits, (groups, outputs))
        zeros = drawn if way.zero is None else np.full((groups, outputs), way.zero)
        scales = generator.uniform(0.01, 0.03, (groups, outputs)).astype(np.float16)
        awq = way.method == "awq"
        stored[f"{base}qweight"] = words_of(numbers, way.bits, down=not awq, awq=awq)
        stored[f"{base}qzeros"] = words_of(zeros - way.less, way.bits, down=False, awq=awq)
        stored[f"{base}scales"] = scales
        # All matrices that multiply the same rows have their inputs in one order.
        places = np.arange(inputs, dtype=np.int32) // group
        if not way.ordered:
            places = np.random.default_rng(inputs + ("o_proj" in name)).permutation(places)
        if not awq:
            stored[f"{base}g_idx"] = places
        whole = (numbers - zeros[places]).astype(np.float32)
        values[name] = np.ascontiguousarray((whole * scales.astype(np.float32)[places]).T)
    config = llama(**{**FIELDS, "tie_word_embeddings": tied}, quantization_config={**way.config, **changes})
    return write(folder, config, stored), values


WAYS = {
    "gptq": (Way("gptq", less=1), 4),
    "gptq v2, one group": (Way("gptq", group=-1), 4),
    "gptq with zero points": (Way("gptq", zero=None, less=1), 4),
    "gptq in another order": (Way("gptq", less=1, ordered=False), 4),
    "gptq of 8 bits in another order": (Way("gptq", bits=8, zero=None, less=1, ordered=False), 8),
    "gptq of 8 bits": (Way("gptq", bits=8, zero=128, less=1), 8),
    "gptq of 8 bits with zero points": (Way("gptq", bits=8, zero=None, less=1), 8),
    "gptq of 8 bits around 20": (Way("gptq", bits=8, zero=20), 8),
    "awq": (Way("awq", zero=None), 4),
    "awq, one group": (Way("awq", zero=None, group=-1), 4),
    "awq around 8": (Way("awq"), 4),
}


@pytest.mark.parametrize("name", WAYS)
def test_every_value_is_kept(name: str, tmp_path: Path) -> None:
    way, bits = WAYS[name]
    path, values = made(tmp_path, way)
    read = read_folder(path)
    assert set(read.weights) == set(values) and read.bits == bits
    for weight, wanted in values.items():
        tensor = read.weights[weight]
        assert tensor.shape == wanted.shape and (tensor.form is not None) == ("proj" in weight)
        assert np.array_equal(tensor.read(weight), wanted)
        if tensor.form is None:
            continue
        middle = way.zero == 1 << way.bits - 1
        block = wanted.shape[1] if way.group == -1 else way.group
        assert tensor.form == Form(bits, block=block, asymmetry="" if middle else "zero")
        # A scale for each group of the file, and a byte for its zero point.
        groups = wanted.shape[0] * wanted.shape[1] // block
        stored = sum(one.nbytes for one in tensor.quantised(weight, bits).arrays)
        assert stored == wanted.size * way.bits // 8 + groups * (2 if middle else 3)
    assert ["no tokenizer" in note for note in read.notes] == [True]


def test_groups_of_64_share_their_scales(tmp_path: Path) -> None:
    """All matrices but one have 64 inputs: that one, with 96, is not of whole groups."""
    path, _ = made(tmp_path / "a", Way("awq", group=32))
    with pytest.raises(EdgeError, match=r"down_proj: qweight \[96, 8\] is not of whole groups of 64 inputs"):
        write(path, llama(**FIELDS, quantization_config=Way("awq", group=64).config), None)
        read_folder(path)


@pytest.mark.parametrize(
    "name", ["gptq", "gptq with zero points", "gptq in another order", "awq", "awq, one group"]
)
def test_a_packed_model_is_deployed_as_it_is(name: str, tmp_path: Path) -> None:
    path, values = made(tmp_path / "packed", WAYS[name][0])
    lines: list[str] = []
    model = import_decoder(path, 32, 8, notice=lines.append)
    assert {spec.dtype for spec in model.state} == {"float16"}
    # How much prompts may round depends on the random numbers.
    assert ["no tokenizer" in line for line in lines if "round" not in line] == [True]
    # Golden cases are those of the same values in floating point.
    plain = write(tmp_path / "plain", llama(**FIELDS), values)
    tokens = np.array([case.inputs[0][0] for case in model.golden[:24]], np.int32)
    logits = reference_logits(plain, tokens, ())
    machine = Machine(model.module, empty_state(model.state))
    for case, wanted in zip(model.golden, logits, strict=False):
        assert np.abs(case.outputs[0] - wanted).max() < 1e-5 * np.abs(wanted).max()
        step = machine.run(*case.inputs)
        assert np.abs(step - wanted).max() < 5e-3 * np.abs(wanted).max()
    with pytest.raises(EdgeError, match="is quantised already: leave --quantize out"):
        import_decoder(path, 32, 8, "int4")


def test_an_embedding_in_another_order_gives_rows_in_order(tmp_path: Path) -> None:
    path, values = made(tmp_path / "packed", Way("gptq", less=1, ordered=False), tied=True)
    model = import_decoder(path, 32, 8)
    plain = write(tmp_path / "plain", llama(**{**FIELDS, "tie_word_embeddings": True}), values)
    tokens = np.array([case.inputs[0][0] for case in model.golden[:8]], np.int32)
    logits = reference_logits(plain, tokens, ())
    machine = Machine(model.module, empty_state(model.state))
    for case, wanted in zip(model.golden, logits, strict=False):
        assert np.abs(case.outputs[0] - wanted).max() < 1e-5 * np.abs(wanted).max()
        assert np.abs(machine.run(*case.inputs) - wanted).max() < 5e-3 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quant_method": "bitsandbytes"}, "quantization_config of 'bitsandbytes' is not read"),
        ({"quant_method": 4}, "quant_method"),
        ({"bits": 3}, "bits 3 is not supported"),
        ({"bits": "4"}, "bits '4' is not supported"),
        ({"group_size": 48}, "group_size 48, which is no multiple of 32, is not supported"),
        ({"group_size": 0}, "group_size"),
        (
            {"group_size": 128},
            "is not of whole groups of 128 inputs: give the config.json, with the group_size",
        ),
        ({"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' is not supported"),
        ({"is_marlin_format": True}, "is_marlin_format True is not supported"),
        ({"dynamic": {"-:lm_head": {}}}, "dynamic .* is not supported"),
        ({"quant_method": "awq", "version": "gemv"}, "version 'gemv' is not supported"),
        ({"quant_method": "awq"}, "qzeros is I32|is not of whole groups"),
    ],
)
def test_another_way_of_quantising_is_refused_by_name(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path, _ = made(tmp_path, Way("gptq"), **changes)
    refused(path, words)


def refused(path: Path, words: str) -> None:
    with pytest.raises(EdgeError, match=words) as error:
        import_decoder(path, 32, 8)
    assert "\n" not in str(error.value)


def rewritten(folder: Path, changes: Mapping[str, np.ndarray | None]) -> Path:
    import safetensors.numpy

    path, _ = made(folder, Way("gptq", less=1))
    stored = safetensors.numpy.load_file(path / "model.safetensors")
    for part, value in changes.items():
        stored[f"{FIRST}.{part}"] = value
    kept = {name: value for name, value in stored.items() if value is not None}
    safetensors.numpy.save_file(kept, path / "model.safetensors")
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scales": None}, "scales is missing"),
        ({"qweight": np.zeros((8, 32), np.int32)}, r"qzeros is I32 \[2, 8\], not I32 \[2, 4\]"),
        ({"qweight": np.zeros((8,), np.int32)}, "qweight is no matrix"),
        ({"qweight": np.zeros((7, 64), np.int32)}, "is not of whole groups"),
        ({"qweight": np.zeros((8, 64), np.float32)}, r"qweight is F32 \[8, 64\], not I32 \[8, 64\]"),
        ({"scales": np.ones((2, 64), np.float32)}, r"scales is F32 \[2, 64\], not F16 \[2, 64\]"),
        ({"scales": np.full((2, 64), np.nan, np.float16)}, "q_proj.weight' holds NaN or infinity"),
        ({"g_idx": np.zeros(64, np.int32)}, "g_idx does not give each group 32 inputs"),
        ({"g_idx": np.full(64, -1, np.int32)}, "g_idx does not give each group 32 inputs"),
        ({"qzeros": np.full((2, 8), -1, np.int32)}, "a zero point of GPTQ's first format is 0 or beyond"),
    ],
)
def test_parts_that_do_not_fit_are_one_line(
    changes: dict[str, np.ndarray | None], words: str, tmp_path: Path
) -> None:
    refused(rewritten(tmp_path, changes), words)


def test_a_folder_without_packed_weights_is_told(tmp_path: Path) -> None:
    fields = llama(**FIELDS, quantization_config=Way("awq").config)
    refused(write(tmp_path, fields, llama_weights()), "says awq, and no weight is packed")


@pytest.mark.parametrize("name", ["gptq", "awq"])
def test_packed_weights_without_their_configuration_are_told(name: str, tmp_path: Path) -> None:
    """As programs write them that keep it in a file of its own."""
    path, _ = made(tmp_path, WAYS[name][0])
    (path / "config.json").write_text(json.dumps(llama(**FIELDS)))
    refused(path, "are packed .GPTQ or AWQ., and config.json has no quantization_config: add it")


def test_a_pass_dequantises_a_packed_matrix_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = made(tmp_path, WAYS["gptq"][0])
    # Every matrix has more than a block.
    monkeypatch.setattr(streamed, "_BLOCK", 64)
    read, count = PackedTensor.read, Counter[str]()

    def counted(self: PackedTensor, name: str) -> np.ndarray:
        count[name] += 1
        return read(self, name)

    monkeypatch.setattr(PackedTensor, "read", counted)
    model = streamed.make_model(read_folder(path), {})
    for passes in (1, 2):
        logits_of(model, [1, 2, 3])
        assert len(count) == 14 and set(count.values()) == {passes}
