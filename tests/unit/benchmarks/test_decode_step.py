"""Decode steps for the benchmarks: token by token, they compute what the whole text does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from benchmarks.e2e import decode_step

_TEXT = (3, 1, 4, 1, 5, 9, 2, 6)


def llama() -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 40}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False, attn_implementation="eager"))


def gpt2() -> Any:
    sizes = {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 40, "n_positions": 512}
    return GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False, attn_implementation="eager"))


@pytest.mark.parametrize("make", [llama, gpt2])
def test_steps_compute_what_the_whole_text_does(make: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = make().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter
        decode_step.write_step(model, tmp_path / "step.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "step.onnx"), providers=["CPUExecutionProvider"])
    token, position, *caches = (one.name for one in session.get_inputs())
    # What lies behind the text is seen by no step.
    kept = [np.full(one.shape, 1e3, np.float32) for one in session.get_inputs()[2:]]
    made = []
    for place, number in enumerate(_TEXT):
        given = {token: np.array([[number]]), position: np.array([place])}
        logits, *kept = session.run(None, given | dict(zip(caches, kept, strict=True)))
        made.append(logits[0, 0])
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([_TEXT])).logits[0].numpy()
    np.testing.assert_allclose(np.array(made), wanted, rtol=1e-4, atol=1e-5)


def test_a_model_that_writes_no_text_has_no_step(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="mlp is no decoder: it has no step"):
        decode_step.decode_step_file("mlp", tmp_path / "mlp.step.onnx")
    assert not list(tmp_path.iterdir())
