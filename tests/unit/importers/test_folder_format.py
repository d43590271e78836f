"""Which importer reads a folder of transformers, by its config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from host.importers.decoders.architectures import known_architectures
from host.language_file import DECODER_TYPES
from host.model_file import detect_format


def test_the_types_that_are_language_models_are_those_that_are_read() -> None:
    assert sorted(DECODER_TYPES) == sorted(known_architectures())


@pytest.mark.parametrize(
    ("config", "format_name"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}, "transformers"),
        ({"model_type": "falcon", "architectures": ["FalconForCausalLM"]}, "transformers"),
        ({"model_type": "bert"}, "transformers"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "encoder"),
        ({"model_type": "vit", "architectures": ["ViTForImageClassification"]}, "encoder"),
        ({"architectures": [3]}, "encoder"),
        ([], "transformers"),
    ],
)
def test_the_configuration_decides(config: Any, format_name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert detect_format(tmp_path) == format_name
