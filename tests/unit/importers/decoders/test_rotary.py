"""Frequencies of rotary embeddings are those of transformers, with the parameters of published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.importers.decoders.config import Config
from host.importers.decoders.rotary import read_rotary, rope_parameters

LLAMA = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0 + number / 10 for number in range(32)],
    "long_factor": [2.0] * 32,
    "original_max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("theta", "values"),
    [
        (10000.0, {"rope_type": "linear", "factor": 2.5}),
        (10000.0, {"rope_type": "dynamic", "factor": 2.5}),
        (500000.0, LLAMA),
        (1e6, YARN),
        (1e6, {**YARN, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0}),
        (1e4, {**YARN, "mscale": 0.707, "mscale_all_dim": 0.5}),
        (1e4, {**YARN, "attention_factor": 1.5}),
        (1e4, {**YARN, "factor": 0.5}),
        (1e4, LONG),
        (1e4, {**LONG, "attention_factor": 1.2}),
        (1e4, {**LONG, "factor": 8.0}),
    ],
)
def test_frequencies_are_those_of_transformers(theta: float, values: dict[str, Any]) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    fields = {"max_position_embeddings": 131072, "head_dim": 64, "rope_parameters": values}
    config = Config(Path("model"), {**fields, "rope_parameters": {**values, "rope_theta": theta}})
    made, positions = read_rotary(config, rope_parameters(config), 64)
    given = LlamaConfig(**{**fields, "rope_parameters": {**values, "rope_theta": theta}})
    wanted, scale = ROPE_INIT_FUNCTIONS[str(values["rope_type"])](given, "cpu")
    assert np.allclose(made.frequencies, wanted.numpy(), rtol=2e-6)
    assert made.scale == pytest.approx(scale)
    # Beyond the context of the training LongRoPE is another rotation.
    assert positions == (4096 if values["rope_type"] == "longrope" else 0)


def test_the_old_form_is_the_new_one() -> None:
    old = {"max_position_embeddings": 131072, "rope_theta": 5e5, "rope_scaling": {**LLAMA, "type": "llama3"}}
    new = {"max_position_embeddings": 131072, "rope_parameters": {**LLAMA, "rope_theta": 5e5}}
    made = []
    for fields in (old, new):
        config = Config(Path("model"), fields)
        made.append(read_rotary(config, rope_parameters(config), 64))
    assert made[0] == made[1]
    plain = Config(Path("model"), {"rope_theta": 100.0, "rope_scaling": None})
    assert read_rotary(plain, rope_parameters(plain), 4)[0].frequencies == (1.0, 0.1)
