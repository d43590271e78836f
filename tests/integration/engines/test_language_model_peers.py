"""Peers that have their own writers: what is written for one holds the model, and it computes that one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.llm.figures import agrees
from benchmarks.llm.models import Shape, make
from device_agent.text_engines.gguf_file import Weights
from host.compare.text_peers.figures import tokens_of
from host.compare.text_peers.onnx_file import dequantised
from host.compare.text_peers.peers import PEERS, read_file, write_file
from host.compare.text_peers.process import EngineProcess
from host.importers.decoders.reference import reference_logits
from host.model.text_quality import divergence
from research.models.tflite_export import environment

_VOCABULARY = 320


@pytest.mark.parametrize(
    ("name", "kind", "tied", "bits"),
    [
        ("onnxruntime-genai", "llama", False, 8),
        ("onnxruntime-genai", "qwen3", True, 4),
        pytest.param("openvino-genai", "llama", False, 8, marks=pytest.mark.long),
        pytest.param("openvino-genai", "qwen3", True, 4, marks=pytest.mark.long),
    ],
)
def test_it_computes_the_model_of_its_folder(
    name: str, kind: str, tied: bool, bits: int, tmp_path: Path
) -> None:
    peer = PEERS[name]
    # `make test` makes that of onnxruntime-genai, `scripts/make_environment.py openvino-genai` the other.
    python = environment(peer.environment)
    model, path, original = (tmp_path / name for name in ("model", "made", "original"))
    make(Shape(kind, 2, 128, 4, 2, 32, 192, _VOCABULARY, tied), model)
    write_file(peer, python, model, path, bits)
    read_file(peer, python, path, model, original)
    wanted, found = (Weights(folder) for folder in (model, original))
    assert found.keys() == wanted.keys()
    for part, weight in wanted.items():
        error = np.abs(found[part] - weight).max()
        assert error <= 1.01 / 2 ** (bits - 1) * np.abs(weight).max(), part
        # Norms stay as they are, and for ONNX Runtime an embedding that is no head.
        is_embedding = name == "onnxruntime-genai" and part == "model.embed_tokens.weight"
        assert (error == 0.0) == (weight.ndim == 1 or (is_embedding and not tied)), part
    with EngineProcess(peer.name, peer.module, 1, str(python)) as engine:
        engine.ask("load", path=str(path), threads=1, context=64)
        text = tokens_of(3, 24, _VOCABULARY)
        engine.ask("logits", tokens=text, path=str(tmp_path / "logits.npy"))
        reference = reference_logits(original, np.array(text, np.int32), ())
        # Its activations are 8 bits.
        assert divergence(reference, np.load(tmp_path / "logits.npy")) < 1e-3
        made = engine.ask("decode", tokens=text[:8], count=11)["tokens"]
        assert engine.ask("prompt", tokens=text[:8])["token"] == made[0]
        again = engine.ask("decode", tokens=[*text[:8], *made[:4]], count=7)["tokens"]
        assert again == made[4:]
    whole = np.array([*text[:8], *made[:-1]], np.int32)
    assert agrees(reference_logits(original, whole, ())[7:], made)


def test_numbers_of_four_bits_lie_two_in_a_byte() -> None:
    packed = np.array([[[0x98, 0x0F]]], np.uint8)
    found = dequantised(packed, np.array([0.5], np.float32), {"bits": 4, "N": 1, "K": 4, "block_size": 4})
    assert found.tolist() == [[0.0, 0.5, 3.5, -4.0]]
