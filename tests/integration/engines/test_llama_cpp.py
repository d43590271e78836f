"""llama.cpp as a peer: the files that are written for it hold the model, and it computes that one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.llm.figures import agrees
from benchmarks.llm.models import Shape, make
from benchmarks.result_file import ROOT
from device_agent.text_engines.gguf_file import Weights
from host.compare.text_peers.figures import tokens_of
from host.compare.text_peers.peers import PEERS, write_file
from host.compare.text_peers.process import EngineProcess
from host.errors import EngineError
from host.importers.decoders.reference import reference_logits
from host.model.text_quality import divergence
from tests.unit.importers.decoders.models import save

_PEER = PEERS["llama.cpp"]
_VOCABULARY = 300
# The greatest error of a weight over its group's largest.
_ROUNDING = {4: 1.01 / 8, 8: 0.57 / 127}


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of its environment, which takes minutes to make."""
    folder = ROOT / ".cache" / f"env-{_PEER.environment}"
    if not (folder / "installed").is_file():
        pytest.skip("llama_cpp and gguf are not installed: scripts/make_environment.py llama-cpp makes them")
    return folder / "bin" / "python"


@pytest.fixture
def engine(python: Path) -> Iterator[EngineProcess]:
    with EngineProcess(_PEER.name, _PEER.module, 1, str(python)) as process:
        yield process


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("kind", "tied"), [("llama", False), ("qwen3", True)])
def test_it_computes_the_model_of_its_file(
    kind: str, tied: bool, bits: int, engine: EngineProcess, tmp_path: Path
) -> None:
    make(Shape(kind, 2, 128, 4, 2, 32, 256, _VOCABULARY, tied), tmp_path / "model")
    file, original = tmp_path / "model.gguf", tmp_path / "original"
    engine.ask("write", folder=str(tmp_path / "model"), path=str(file), bits=bits)
    engine.ask("original", path=str(file), model=str(tmp_path / "model"), folder=str(original))
    wanted = Weights(tmp_path / "model")
    found = Weights(original)
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        if weight.ndim == 1:
            assert (found[name] == weight).all(), name
        else:
            groups = np.abs(weight).reshape(-1, 32).max(axis=-1, keepdims=True)
            errors = np.abs(found[name] - weight).reshape(-1, 32)
            assert (errors <= _ROUNDING[bits] * groups).all(), name
            assert errors.any(), name
    engine.ask("load", path=str(file), threads=1, context=64)
    text = tokens_of(1, 12, _VOCABULARY)
    made = engine.ask("decode", tokens=text, count=7)["tokens"]
    assert engine.ask("decode", tokens=text, count=7)["tokens"] == made
    assert engine.ask("prompt", tokens=text)["token"] == made[0]
    logits = reference_logits(original, np.array([*text, *made[:-1]], np.int32), ())
    assert agrees(logits[len(text) - 1 :], made)
    engine.ask("logits", tokens=text, path=str(tmp_path / "logits.npy"))
    assert divergence(logits[: len(text)], np.load(tmp_path / "logits.npy")) < 1e-4


@pytest.mark.parametrize(("kind", "bits", "half"), [("qwen2", 16, True), ("mistral", 32, False)])
def test_files_in_floats_are_of_what_the_folder_has(
    kind: str, bits: int, half: bool, python: Path, tmp_path: Path
) -> None:
    folder, file = tmp_path / "model", tmp_path / "model.gguf"
    sizes = {"hidden_size": 128, "intermediate_size": 192, "vocab_size": _VOCABULARY}
    model = save(folder, kind, **sizes, **({"sliding_window": None} if kind == "mistral" else {}))
    if half:
        for one in folder.glob("*.safetensors"):
            one.unlink()
        model.bfloat16().save_pretrained(folder, max_shard_size="100KB")
        assert len(list(folder.glob("*.safetensors"))) > 1
    text = tokens_of(1, 24, _VOCABULARY)
    write_file(_PEER, python, folder, file, bits)
    with EngineProcess(_PEER.name, _PEER.module, 1, str(python)) as engine:
        engine.ask("load", path=str(file), threads=1, context=64)
        engine.ask("logits", tokens=text, path=str(tmp_path / "logits.npy"))
    reference = reference_logits(folder, np.array(text, np.int32), ())
    assert divergence(reference, np.load(tmp_path / "logits.npy")) < 1e-3


def test_what_would_be_another_model_is_not_written(python: Path, tmp_path: Path) -> None:
    for kind, fields, reason in (
        ("gemma2", {"head_dim": 16}, "the architecture gemma2"),
        ("mistral", {"sliding_window": 9}, "sliding windows"),
        ("llama", {"attention_bias": True}, "biases"),
    ):
        folder = tmp_path / reason.replace(" ", "-")
        save(folder, kind, **fields)
        with pytest.raises(EngineError, match=f"no GGUF file is written of {reason}"):
            write_file(_PEER, python, folder, tmp_path / "model.gguf", 4)
