"""Which engines there are and what each can read."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from device_agent.contract.text import printable
from host.errors import EngineError, UserError
from host.extensions import extensions


@dataclass(frozen=True)
class Engine:
    """A runtime that can run a model.

    Attributes:
        name: identifier used on the command line and in manifests.
        title: name for people.
        formats: model formats that it reads ("tvm" is a compiled library).
        modules: Python modules, any one of which makes it available.
        peer: whether it can run on a device beside the compiled model; else it makes golden outputs only.
        texts: whether it continues texts beside a language model, in a process of its own on this machine,
            and runs no other model.
    """

    name: str
    title: str
    formats: tuple[str, ...]
    modules: tuple[str, ...]
    peer: bool = True
    texts: bool = False


_OWN: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine("tvm", "EdgeTLM (TVM runtime)", ("tvm",), ("tvm_ffi",)),
        Engine("onnxruntime", "ONNX Runtime", ("onnx",), ("onnxruntime",)),
        Engine("litert", "LiteRT", ("tflite",), ("ai_edge_litert", "tflite_runtime")),
        Engine("torch", "PyTorch", ("pt2",), ("torch",)),
        Engine("transformers", "Transformers", ("transformers", "gguf"), ("transformers",), peer=False),
        Engine("openvino", "OpenVINO", ("onnx", "tflite"), ("openvino",)),
        Engine("tensorrt", "TensorRT", ("onnx",), ("tensorrt",)),
        Engine("tensorrt-fp16", "TensorRT (fp16)", ("onnx",), ("tensorrt",)),
        Engine("tensorrt-int8", "TensorRT (int8)", ("onnx",), ("tensorrt",)),
        Engine("onnxruntime-cuda", "ONNX Runtime (CUDA)", ("onnx",), ("onnxruntime",)),
        Engine("onnxruntime-tensorrt", "ONNX Runtime (TensorRT)", ("onnx",), ("onnxruntime",)),
        Engine("ncnn", "ncnn", ("ncnn",), ("ncnn",)),
        Engine("llama.cpp", "llama.cpp", (), ("llama_cpp",), texts=True),
        Engine("llama.cpp-no-flash", "llama.cpp, no flash attention", (), ("llama_cpp",), texts=True),
        Engine("onnxruntime-genai", "ONNX Runtime GenAI", (), ("onnxruntime_genai",), texts=True),
        Engine("openvino-genai", "OpenVINO GenAI", (), ("openvino_genai",), texts=True),
    )
}

# What a module of an installed package that is an engine has: see `device_agent.execute.engines`.
_ATTRIBUTES = ("TITLE", "FORMATS", "MODULES", "create")


def engines() -> dict[str, Engine]:
    """All engines by name: the product's own, then those of installed packages.

    Raises:
        UserError: what a package adds is no engine.
    """
    found = dict(_OWN)
    for name, extension in extensions("engines", tuple(_OWN)).items():
        module = extension.load(
            lambda one: all(hasattr(one, attribute) for attribute in _ATTRIBUTES),
            f"module with {', '.join(_ATTRIBUTES)}",
        )
        found[name] = Engine(name, str(module.TITLE), tuple(module.FORMATS), tuple(module.MODULES))
    return found


_ORIGINAL_RUNTIME = {
    "onnx": "onnxruntime",
    "pt2": "torch",
    "tflite": "litert",
    "transformers": "transformers",
    "gguf": "transformers",
}


def engine_for_format(format_name: str) -> Engine:
    """The original runtime of a model format, which golden outputs come from.

    Raises:
        EngineError: no runtime is known for this format.
    """
    if format_name not in _ORIGINAL_RUNTIME:
        raise EngineError(
            f"no runtime is known for the model format {format_name!r}: use {', '.join(_ORIGINAL_RUNTIME)}"
        )
    return _OWN[_ORIGINAL_RUNTIME[format_name]]


def text_engines() -> tuple[str, ...]:
    """The engines that are measured beside language models."""
    return tuple(name for name, engine in _OWN.items() if engine.texts)


def check_peers(names: Sequence[str]) -> None:
    """Refuse what is no engine that can be measured beside the compiled model.

    Raises:
        UserError: says which there are.
    """
    known = engines()
    peers = [name for name in known if name != "tvm" and known[name].peer]
    for name in names:
        if name not in peers:
            raise UserError(f"no peer {printable(repr(name), 80)}: use {', '.join(peers)}")


def check_interpreters(names: Iterable[str], peers: Sequence[str] | None) -> None:
    """Refuse an interpreter of what is no engine of language models, or of one that is not measured.

    Args:
        names: of the engines that interpreters were given for. One serves all engines of the same package.
        peers: that were asked for; None for those that are there.

    Raises:
        UserError: says which there are.
    """
    for name in names:
        shown = f"--peer-python {printable(name, 80)}"
        if name not in text_engines():
            raise UserError(f"{shown}: use {', '.join(text_engines())}")
        same = [other for other in text_engines() if _OWN[other].modules == _OWN[name].modules]
        if peers is not None and not set(same) & set(peers):
            raise UserError(f"{shown}: it is not measured: add --peer {name}, or leave --peer-python out")


def unavailable(name: str) -> str | None:
    """Why an engine cannot be used in this interpreter, or None if it can.

    Raises:
        EngineError: there is no engine of this name.
    """
    known = engines()
    if name not in known:
        raise EngineError(f"unknown engine {name!r}: use one of {', '.join(known)}")
    engine = known[name]
    if any(importlib.util.find_spec(module) is not None for module in engine.modules):
        return None
    return f"{engine.title} is not installed (no module {' or '.join(engine.modules)})"
