"""A transformers folder as the folder of ONNX Runtime GenAI, and back: Llama and Qwen3.

    python -m host.compare.text_peers.onnx_file write PYTHON FOLDER PATH BITS
    python -m host.compare.text_peers.onnx_file original PYTHON PATH MODEL FOLDER

with the model builder of the package `onnxruntime_genai` in the environment of PYTHON. The builder needs
PyTorch and transformers, which that environment has not and this one has; it is a program of Python files
only. No model hub is asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from device_agent.contract.manifest import TOKENIZER

# What an interpreter is asked for the folder of the package, wherever its environment keeps packages.
_WHERE = (
    "import importlib.util, os; found = importlib.util.find_spec('onnxruntime_genai'); "
    "print(os.path.dirname(found.origin) if found and found.origin else '')"
)
_BUILDER = "models/builder.py"
_ASKED_S = 60.0
_PRECISIONS = {4: "int4", 8: "int8", 32: "fp32"}
_MODEL, _WEIGHTS, _CONFIG = "model.onnx", "model.safetensors", "config.json"
# Products of a layer: name in the ONNX file, names in transformers, whose rows follow one another.
_LAYER = {
    "attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn.o_proj": ("self_attn.o_proj",),
    "mlp.gate_proj": ("mlp.gate_proj",),
    "mlp.up_proj": ("mlp.up_proj",),
    "mlp.down_proj": ("mlp.down_proj",),
}


def write(builder: Path, folder: Path, path: Path, bits: int) -> None:
    """Write a model as its own builder does by default: groups of 32, symmetric, int8 activations.

    Args:
        builder: `builder.py` of the package.
        folder: of transformers.
        path: folder to write.
        bits: of a weight: 4, 8 or 32.

    Raises:
        ValueError: the builder failed.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-genai-", dir=path.parent) as scratch:
        given, made = Path(scratch) / "model", Path(scratch) / "made"
        _with_tokenizer(folder, given)
        command = [sys.executable, str(builder), "-i", str(given), "-o", str(made), "-p", _PRECISIONS[bits]]
        command += ["-e", "cpu", "-c", str(Path(scratch) / "cache")]
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        done = subprocess.run(
            command, cwd=scratch, env=os.environ | offline, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise ValueError(f"the model builder failed: {lines[-1] if lines else done.returncode}")
        made.replace(path)


def _with_tokenizer(folder: Path, given: Path) -> None:
    """The model again with what the builder asks for: a tokenizer, and a token that ends a text."""
    from tokenizers import Tokenizer, models

    given.mkdir()
    for file in folder.glob("*.safetensors*"):
        (given / file.name).symlink_to(file.absolute())
    config = json.loads((folder / _CONFIG).read_text())
    count = int(config["vocab_size"])
    (given / _CONFIG).write_text(json.dumps({**config, "eos_token_id": 0, "bos_token_id": 0}))
    words = {f"<{number}>": number for number in range(count)}
    Tokenizer(models.WordLevel(words, unk_token="<0>")).save(str(given / TOKENIZER))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (given / "tokenizer_config.json").write_text(json.dumps(kind))


def original(path: Path, model: Path, folder: Path) -> None:
    """Write the model that a folder of ONNX Runtime GenAI holds as a transformers folder, as float32.

    Args:
        path: of the folder.
        model: folder that it was made of, for the configuration and what is not quantised.
        folder: to write.
    """
    import onnx
    import safetensors.numpy

    config = json.loads((model / _CONFIG).read_text())
    weights = safetensors.numpy.load_file(model / _WEIGHTS)
    graph = onnx.load(str(path / _MODEL)).graph
    arrays = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type != "MatMulNBits":
            continue
        attributes = {one.name: one.i for one in node.attribute}
        packed, scales = (onnx.numpy_helper.to_array(arrays[name]) for name in node.input[1:3])
        values = dequantised(packed, scales, attributes)
        names = _names(node.input[1].partition(".MatMul.")[0])
        begin = 0
        for name in names:
            # The head of a model that is tied is the embedding.
            end = begin + len(weights.get(name, values))
            weights[name] = np.ascontiguousarray(values[begin:end])
            begin = end
    if config["tie_word_embeddings"]:
        weights["model.embed_tokens.weight"] = weights.pop("lm_head.weight")
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(weights, folder / _WEIGHTS, {"format": "pt"})
    shutil.copy(model / _CONFIG, folder / _CONFIG)


def dequantised(packed: np.ndarray, scales: np.ndarray, attributes: dict[str, int]) -> np.ndarray:
    """The values (N, K) of a weight of MatMulNBits without zero points.

    Args:
        packed: (N, K / block, block * bits / 8) bytes; of two numbers of 4 bits the first is the low one.
        scales: of each block.
        attributes: of the operator, as its documentation names them.
    """
    bits, rows, columns = attributes["bits"], attributes["N"], attributes["K"]
    numbers = packed.view(np.uint8)
    if bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], axis=-1)
    numbers = numbers.reshape(rows, -1, attributes["block_size"]).astype(np.float32) - 2 ** (bits - 1)
    values = numbers * scales.reshape(rows, -1, 1).astype(np.float32)
    return np.ascontiguousarray(values.reshape(rows, -1)[:, :columns])


def _names(product: str) -> tuple[str, ...]:
    """The weights in transformers of a product in the ONNX file."""
    if product == "lm_head":
        return ("lm_head.weight",)
    _, _, number, name = product.split(".", 3)
    return tuple(f"model.layers.{number}.{one}.weight" for one in _LAYER[name])


def builder_of(python: str) -> Path:
    """The model builder in the environment of an interpreter.

    Raises:
        ValueError: the package is not there, or the interpreter cannot be asked.
    """
    try:
        done = subprocess.run(
            [python, "-c", _WHERE], capture_output=True, text=True, timeout=_ASKED_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{python} cannot be asked for onnxruntime_genai: {error}") from error
    folder = done.stdout.strip()
    if not folder or not (Path(folder) / _BUILDER).is_file():
        raise ValueError("onnxruntime_genai with its model builder is not installed beside that interpreter")
    return Path(folder) / _BUILDER


def main(action: str, python: str, *arguments: str) -> None:
    """Write one of the two; see the top of the file."""
    if action == "original":
        original(*map(Path, arguments))
        return
    folder, path, bits = arguments
    write(builder_of(python), Path(folder), Path(path), int(bits))


if __name__ == "__main__":
    main(*sys.argv[1:])
