"""A text of the user's: its tokens, and what transformers makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from host.compare.text_quality import judge_text
from host.errors import UserError, VerifyError
from host.importers.decoders.folder import ModelFolder, read_folder
from host.importers.decoders.importer import import_decoder
from host.importers.decoders.text import MOST_TOKENS, tokens_of_text
from host.model import ImportedModel
from host.model.text_quality import FILE, FLOATS, TextReference
from host.options.compile import CompileOptions
from host.options.of_model import check_for_model
from tests.decoders.operations import Machine, empty_state
from tests.unit.importers.decoders.models import save

WORDS = ["the", "sea", "is", "deep", "and", "the", "land", "is", "wide", "but", "the", "sky", "is", "blue"]
TEXT = " ".join(WORDS * 3)
CONTEXT = 96


class Session:
    """A device whose bundle is run here."""

    def __init__(self, model: ImportedModel) -> None:
        self._machine = Machine(model.module, empty_state(model.state))

    def run(self, inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        return [self._machine.run(*inputs)]


def write_tokenizer(folder: Path) -> None:
    known = {word: number for number, word in enumerate(dict.fromkeys(["[UNK]", *WORDS]))}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    save(path, "qwen3", head_dim=16, max_position_embeddings=128, vocab_size=64)
    write_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def read(folder: Path) -> ModelFolder:
    return read_folder(folder)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_tokens_are_the_first_of_the_text(read: ModelFolder, text: Path) -> None:
    tokens = tokens_of_text(text, read, CONTEXT, 64)
    assert tokens.dtype == np.int32 and tokens.tolist()[:6] == [1, 2, 3, 4, 5, 1]
    assert len(tokens) == 42 and tokens_of_text(text, read, 16, 64).tolist() == tokens.tolist()[:16]
    assert read.tokenizer is not None and isinstance(read.tokenizer, Path)
    of_content = replace(read, tokenizer=read.tokenizer.read_bytes())
    assert tokens_of_text(text, of_content, 16, 64).tolist() == tokens.tolist()[:16]
    # A long text is not read as a whole, whatever character its first part ends in.
    for shift in range(3):
        text.write_text("x" * shift + "the ständig €€ " * 100_000)
        assert len(tokens_of_text(text, read, 4096, 64)) == MOST_TOKENS


def test_what_a_tokenizer_cut_texts_to_in_training_does_not_count(read: ModelFolder, text: Path) -> None:
    tokenizer = Tokenizer.from_file(str(read.tokenizer))
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=50)
    given = replace(read, tokenizer=tokenizer.to_str().encode())
    assert len(tokens_of_text(text, given, CONTEXT, 64)) == 42


def test_a_text_that_cannot_be_used_is_one_line(read: ModelFolder, text: Path, tmp_path: Path) -> None:
    cases = (
        (tmp_path / "none.txt", read, b"", "No such file"),
        (tmp_path, read, b"", "Is a directory"),
        (text, read, b"\xff\xfe", "no text in UTF-8"),
        (text, read, b"sea", "1 token"),
        (text, read, b"", "0 token"),
        (text, replace(read, tokenizer=None), b"the sea", "has no tokenizer"),
        (text, replace(read, tokenizer=b"{"), b"the sea", "the tokenizer cannot be used"),
    )
    for path, model, content, message in cases:
        text.write_bytes(content)
        with pytest.raises(UserError, match=message) as error:
            tokens_of_text(path, model, CONTEXT, 64)
        assert "\n" not in str(error.value) and str(error.value).startswith("--text ")
    text.write_text("the sea")
    with pytest.raises(UserError, match=r"gives token 2, the model knows 0 to 1"):
        tokens_of_text(text, read, CONTEXT, 2)


def test_in_float32_the_text_is_that_of_transformers(folder: Path, text: Path) -> None:
    model = import_decoder(folder, CONTEXT, 8, text=text)
    assert model.text is not None and model.text.baseline == FLOATS
    found = judge_text(Session(model), model.text)
    assert (found.greedy_equal, found.greedy_tokens) == (64, 64)
    assert found.tokens == 42 and found.agreement == 1.0
    assert found.weights_divergence == 0.0 and 0.0 <= found.divergence < 1e-9
    assert found.perplexity == pytest.approx(found.baseline_perplexity, rel=1e-4)
    # Random weights know nothing of the text.
    logits, tokens = model.text.logits.astype(np.float64), model.text.tokens
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    right = shares[np.arange(41), tokens[1:]]
    assert found.baseline_perplexity == pytest.approx(np.exp(-np.log(right).mean()))


def test_of_quantised_weights_it_says_what_they_lose(folder: Path, text: Path) -> None:
    model = import_decoder(folder, CONTEXT, 8, "int4", text=text)
    assert model.text is not None
    found = judge_text(Session(model), model.text)
    # The kernels add next to nothing to what the rounding of the weights does.
    assert found.weights_divergence > 1e-2
    assert found.divergence == pytest.approx(found.weights_divergence, rel=0.05)
    assert found.perplexity != pytest.approx(found.baseline_perplexity, rel=1e-3)
    assert found.greedy_equal > 0


def test_another_continuation_is_counted_up_to_where_it_parts(folder: Path, text: Path) -> None:
    model = import_decoder(folder, CONTEXT, 8, text=text)
    assert model.text is not None
    greedy = list(model.text.greedy)
    greedy[5] = (greedy[5] + 1) % 64
    assert judge_text(Session(model), replace(model.text, greedy=tuple(greedy))).greedy_equal == 5


def test_logits_that_are_none_are_refused() -> None:
    class Broken:
        def run(self, inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
            return [np.full((1, 4), np.nan, np.float32)]

    reference = TextReference(np.zeros(2, np.int32), np.zeros((2, 4), np.float32), FILE, 1, (0,))
    with pytest.raises(VerifyError, match="or not finite"):
        judge_text(Broken(), reference)


def test_a_sample_of_text_chooses_scales_and_is_part_of_the_program(folder: Path, text: Path) -> None:
    def made(calibration: Path | None) -> ImportedModel:
        return import_decoder(folder, 48, 8, "int4", calibration=calibration)

    plain, chosen = made(None), made(text)
    assert plain.content_hash != chosen.content_hash == made(text).content_hash
    # The prompts are the same, and the weights of the reference are not.
    pairs = list(zip(plain.golden, chosen.golden, strict=True))
    assert all(np.array_equal(one.inputs[0], other.inputs[0]) for one, other in pairs)
    moved = max(np.abs(one.outputs[0] - other.outputs[0]).max() for one, other in pairs if one.outputs)
    assert 0 < moved < np.abs(plain.golden[0].outputs[0]).max()
    with pytest.raises(UserError, match=r"--calibration .*none\.txt: No such file"):
        made(text.with_name("none.txt"))


def test_a_cache_of_bytes_is_for_language_models_on_cpus(folder: Path) -> None:
    for given in ({"dtype": "fp16"}, {"processor": "gpu"}):
        with pytest.raises(UserError, match="--cache int8 is for CPUs, and goes without --dtype fp16"):
            check_for_model(CompileOptions(model=folder, cache="int8", **given), folder, "transformers")
    with pytest.raises(UserError, match="--cache int8 goes only with a language model"):
        check_for_model(CompileOptions(model=folder, cache="int8"), folder, "onnx")


def test_a_sample_goes_with_four_bits(folder: Path, text: Path) -> None:
    for quantize, line in (("", "goes with --quantize int8 or int4"), ("int8", "goes with --quantize int4")):
        options = CompileOptions(model=folder, quantize=quantize, calibration=text)
        with pytest.raises(UserError, match=f"--calibration .*{line}"):
            options.check()
            check_for_model(options, folder, "transformers")
    options = CompileOptions(model=folder, quantize="int4", calibration=text)
    options.check()
    check_for_model(options, folder, "transformers")
