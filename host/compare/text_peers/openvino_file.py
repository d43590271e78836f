"""A transformers folder as the folder of OpenVINO GenAI, and back: Llama and Qwen3.

    python -m host.compare.text_peers.openvino_file write PYTHON FOLDER PATH BITS
    python -m host.compare.text_peers.openvino_file original PYTHON PATH MODEL FOLDER

The model is converted here, where PyTorch and transformers are,
and its weights are quantised by NNCF in the environment of PYTHON. No model hub is asked.

The library wants a graph with the inputs `input_ids`, `attention_mask`, `position_ids` and `beam_idx`, whose
keys and values are variables: https://docs.openvino.ai, "Stateful models", has the form.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.contract.quiet import import_quietly
from host.compare.text_peers.process import EngineProcess

_ENGINE = "device_agent.text_engines.openvino_genai_engine"
_MODEL, _WEIGHTS, _CONFIG = "openvino_model.xml", "model.safetensors", "config.json"
_FULL = 32
_BATCH, _PAST, _NEW = 2, 4, 3
_INPUTS = ("input_ids", "attention_mask", "position_ids")
# Of the module around a model whose weights are named.
_PREFIX = "self.model."


def write(python: Path, folder: Path, path: Path, bits: int) -> None:
    """Write a model with weights of few bits.

    Args:
        python: of the environment with NNCF.
        folder: of transformers.
        path: folder to write.
        bits: of a weight: 4, 8 or 32.

    Raises:
        EngineError: the environment's process failed.
    """
    openvino = import_quietly("openvino")

    with tempfile.TemporaryDirectory(prefix="edgetlm-openvino-", dir=path.parent) as scratch:
        plain, made = Path(scratch) / "plain.xml", Path(scratch) / "made"
        openvino.save_model(converted(folder), plain, compress_to_fp16=False)
        made.mkdir()
        if bits == _FULL:
            for file in (plain, plain.with_suffix(".bin")):
                file.replace((made / _MODEL).with_suffix(file.suffix))
        else:
            with EngineProcess("NNCF", _ENGINE, 1, str(python)) as process:
                process.ask("compress", path=str(plain), compressed=str(made / _MODEL), bits=bits)
        shutil.copy(folder / _CONFIG, made / _CONFIG)
        made.replace(path)


def converted(folder: Path) -> Any:
    """The graph in float32 of a folder of transformers, with keys and values as state.

    Args:
        folder: of transformers.
    """
    openvino = import_quietly("openvino")
    import torch
    from transformers import AutoModelForCausalLM

    read = AutoModelForCausalLM.from_pretrained
    # Its attention is one operation of the graph, which the pipeline looks for.
    model = read(folder, dtype=torch.float32, attn_implementation="sdpa", use_safetensors=True).eval()
    config = model.config
    heads = config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    given = (
        torch.ones((_BATCH, _NEW), dtype=torch.long),
        torch.ones((_BATCH, _PAST + _NEW), dtype=torch.long),
        torch.arange(_PAST, _PAST + _NEW).repeat(_BATCH, 1),
        *(torch.zeros((_BATCH, heads, _PAST, size)) for _ in range(2 * config.num_hidden_layers)),
    )
    with torch.no_grad():
        graph = openvino.convert_model(_with_cache(model), example_input=given)
    graph.outputs[0].get_tensor().set_names({"logits"})
    for name, one in zip(_INPUTS, graph.inputs, strict=False):
        one.get_node().set_partial_shape(openvino.PartialShape([-1, -1]))
        one.get_tensor().set_names({name})
    states = {}
    for number, (past, present) in enumerate(zip(graph.inputs[3:], graph.outputs[1:], strict=True)):
        kind = f"{number // 2}.{('key', 'value')[number % 2]}"
        before, behind = f"past_key_values.{kind}", f"present.{kind}"
        past.get_node().set_partial_shape(openvino.PartialShape([-1, heads, -1, size]))
        past.get_tensor().set_names({before})
        present.get_tensor().set_names({behind})
        states[before] = behind
    _reordered(graph)
    passes = import_quietly("openvino._offline_transformations")
    passes.apply_make_stateful_transformation(graph, states)
    _empty_at_first(graph)
    return graph


def _with_cache(model: Any) -> Any:
    """A module of tensors alone: (input_ids, attention_mask, position_ids, keys, values, keys, ...)."""
    import torch
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    class WithCache(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any
        ) -> tuple[Any, ...]:
            cache = DynamicCache()
            for keys, values in zip(past[::2], past[1::2], strict=True):
                layer = DynamicLayer()
                layer.lazy_initialization(keys, values)
                layer.keys, layer.values = keys, values
                cache.layers.append(layer)
            # Whether a mask is left out is decided while the graph is made, so there is always one.
            new, whole = input_ids.shape[1], attention_mask.shape[1]
            rows = (torch.arange(new) + (whole - new))[None, None, :, None]
            mask = (torch.arange(whole)[None, None, None] <= rows) & attention_mask[:, None, None].bool()
            found = self.model(
                input_ids=input_ids,
                attention_mask=mask,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
            )
            return found.logits, *(part for one in cache.layers for part in (one.keys, one.values))

    return WithCache()


def _reordered(graph: Any) -> None:
    """Texts of a batch change places between steps, as the input `beam_idx` says."""
    openvino, opset13 = import_quietly("openvino"), import_quietly("openvino.opset13")

    order = opset13.parameter(openvino.PartialShape([-1]), np.int32, name="beam_idx")
    order.output(0).get_tensor().set_names({"beam_idx"})
    pasts = graph.inputs[len(_INPUTS) :]
    graph.add_parameters([order])
    for past in pasts:
        users = past.get_target_inputs()
        chosen = opset13.gather(past.get_node(), order, opset13.constant(0, dtype=np.int64))
        for user in users:
            user.replace_source_output(chosen.output(0))
    graph.validate_nodes_and_infer_types()


def _empty_at_first(graph: Any) -> None:
    """The state before the first token: no position, of as many texts as are given."""
    opset13 = import_quietly("openvino.opset13")

    axis = opset13.constant(0, dtype=np.int64)
    shape = opset13.shape_of(graph.input(_INPUTS[0]), output_type="i64")
    batch = opset13.gather(shape, opset13.constant([0], dtype=np.int64), axis)
    for node in graph.get_ops():
        if node.get_type_name() != "ReadValue":
            continue
        _, heads, _, size = node.get_output_partial_shape(0)
        rest = [heads.get_length(), 0, size.get_length()]
        sizes = [batch, *(opset13.constant([one], dtype=np.int64) for one in rest)]
        zero = opset13.constant(0.0, dtype=node.get_output_element_type(0))
        node.set_arguments([opset13.broadcast(zero, opset13.concat(sizes, 0))])
    graph.validate_nodes_and_infer_types()


def original(path: Path, model: Path, folder: Path) -> None:
    """Write the model that a folder of OpenVINO GenAI holds as a transformers folder, as float32.

    Args:
        path: of the folder.
        model: folder that it was made of, for the configuration and what is not quantised.
        folder: to write.
    """
    openvino = import_quietly("openvino")
    import safetensors.numpy

    core = openvino.Core()
    weights = safetensors.numpy.load_file(model / _WEIGHTS)
    for node in core.read_model(path / _MODEL).get_ops():
        name, _, part = node.get_friendly_name().partition("/")
        # What NNCF puts behind the numbers of a weight; its last node gives float32.
        if not (part.startswith("fq_weights") and part.endswith("/convert")):
            continue
        # That part of the graph by itself: numbers and scales, no input.
        values = core.compile_model(openvino.Model([node.output(0)], []), "CPU")({})[0]
        name = name.removeprefix(_PREFIX)
        if weights[name].shape != values.shape:
            raise ValueError(f"{name} has {values.shape} numbers instead of {weights[name].shape}")
        weights[name] = np.ascontiguousarray(values, np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(weights, folder / _WEIGHTS, {"format": "pt"})
    shutil.copy(model / _CONFIG, folder / _CONFIG)


def main(action: str, python: str, *arguments: str) -> None:
    """Write one of the two; see the top of the file."""
    if action == "original":
        original(*map(Path, arguments))
        return
    folder, path, bits = arguments
    write(Path(python), Path(folder), Path(path), int(bits))


if __name__ == "__main__":
    main(*sys.argv[1:])
