"""`sdk deploy --text`: a language model is judged on the device, on a text of the user's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdk.cli.main import main
from tests.tiny_tokenizer import WORDS, write_tokenizer
from tests.unit.importers.decoders.models import save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tiny"
    save(made, "qwen3", head_dim=32, vocab_size=64, max_position_embeddings=128)
    write_tokenizer(made / "tokenizer.json")
    return made


@pytest.mark.parametrize("quantize", ["", "int8"])
def test_the_text_is_judged_on_the_device(
    quantize: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, figures = tmp_path / "text.txt", tmp_path / "figures.json"
    text.write_text(" ".join(WORDS[:12] * 2))
    words = f"deploy {folder} --threads 1 --context 96 --text {text} --json {figures}"
    words += f" --bundle {tmp_path / 'bundle'} --report {tmp_path / 'report.html'}"
    assert main([*words.split(), *(["--quantize", quantize] if quantize else [])]) == 0
    said = capsys.readouterr().out
    speed = json.loads(figures.read_text())["speed"]
    assert [one["behind"] for one in speed["decode"]] == [48, 95] and speed["prefill"]["tokens"] == 64
    assert all(one["tokens_s"] > 0.0 and "joules_a_token" in one for one in speed["decode"])
    assert speed["first_token_s"] * speed["prefill"]["tokens_s"] == pytest.approx(64)
    # Products of two layers and the embedding, which is no head.
    elements = 2 * 64 * (4 * 32 + 2 * 2 * 32 + 4 * 32 + 3 * 96) + 64 * 64
    assert speed["step_bytes"] == elements * (34 if quantize else 128) // 32
    assert (
        f"first token after {speed['first_token_s']:.3g} s" in said
        and "How fast texts come" in (tmp_path / "report.html").read_text()
    )
    found = json.loads(figures.read_text())["text"]
    assert (found["tokens"], found["baseline"]) == (24, "float32")
    assert f"perplexity {found['perplexity']:.4g} over 24 tokens" in said
    assert "greedy continuation equal to the reference" in (tmp_path / "report.html").read_text()
    assert found["greedy"]["tokens"] == 64
    if quantize:
        assert found["weights_kl_divergence"] > 1e-6
        assert found["kl_divergence"] == pytest.approx(found["weights_kl_divergence"], rel=0.2)
    else:
        assert found["greedy"]["equal"] == 64 and found["same_likeliest"] == 1.0
        assert found["weights_kl_divergence"] == 0.0 and 0.0 <= found["kl_divergence"] < 1e-9


def test_a_text_that_is_none_leaves_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.bin"
    text.write_bytes(b"\xff" * 100)
    words = f"deploy {folder} --context 96 --text {text} --bundle {tmp_path / 'bundle'}"
    assert main(words.split()) != 0
    error = capsys.readouterr().err
    assert "no text in UTF-8 (byte 0): give a text, or convert it" in error and "Traceback" not in error
    assert not (tmp_path / "bundle").exists()
