"""The engines that language models are compared with, each in an environment of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from research.models.tflite_export import environment


@dataclass(frozen=True)
class Peer:
    """An engine.

    Attributes:
        name: in the results.
        module: of its process.
        environment: that `scripts/make_environment.py` makes. Engines of one environment read the same file.
        arguments: of the process.
        writer: module that writes and reads its files in this interpreter, given that of the environment; ""
            where the engine's own process does.
        suffix: of the file.
    """

    name: str
    module: str
    environment: str
    arguments: tuple[str, ...] = ()
    writer: str = ""
    suffix: str = ".gguf"


_LLAMA_CPP = "benchmarks.llm.engines.llama_cpp_engine", "llama-cpp"
# Its library takes its flash attention where nobody says otherwise. On processors it is the faster way for
# prompts, and the slower one for single tokens behind long texts: a user can have either.
PEERS = {
    one.name: one
    for one in (
        Peer("llama.cpp", *_LLAMA_CPP),
        Peer("llama.cpp-no-flash", *_LLAMA_CPP, ("--no-flash-attention",)),
        Peer(
            "onnxruntime-genai",
            "benchmarks.llm.engines.onnxruntime_genai_engine",
            "onnxruntime-genai",
            writer="benchmarks.llm.engines.onnx_file",
            suffix=".onnx",
        ),
        Peer(
            "openvino-genai",
            "benchmarks.llm.engines.openvino_genai_engine",
            "openvino-genai",
            writer="benchmarks.llm.engines.openvino_file",
            suffix=".openvino",
        ),
    )
}


@dataclass(frozen=True)
class Installed:
    """Engines that can be compared with.

    Attributes:
        pythons: interpreter of each, by name.
        missing: why another is left out, by name.
    """

    pythons: dict[str, Path]
    missing: dict[str, str]


def install(names: Sequence[str]) -> Installed:
    """The environments of some peers, made where they are missing.

    Args:
        names: of `PEERS`.
    """
    found = Installed({}, {})
    for name in names:
        try:
            found.pythons[name] = environment(PEERS[name].environment)
        except RuntimeError as error:
            found.missing[name] = " ".join(str(error).split())[-400:]
    return found
