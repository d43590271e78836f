"""The engines that language models are compared with: the package of each, its process and its files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from host.compare.text_peers.process import EngineProcess
from host.engines import unavailable
from host.errors import EngineError, one_line

_ROOT = Path(__file__).resolve().parents[3]
_TIME_LIMIT_S = 1800.0


@dataclass(frozen=True)
class TextPeer:
    """An engine.

    Attributes:
        name: in options and results.
        module: of its process.
        environment: of `scripts/make_environment.py` in a checkout. Engines of one environment read the
            same file.
        arguments: of the process.
        writer: module that writes and reads its files in this interpreter, given that of the environment; ""
            where the engine's own process does.
        suffix: of the file.
        bits: of a weight, for which a file is written.
    """

    name: str
    module: str
    environment: str
    arguments: tuple[str, ...] = ()
    writer: str = ""
    suffix: str = ".gguf"
    bits: tuple[int, ...] = (4, 8, 32)


_LLAMA_CPP = "device_agent.text_engines.llama_cpp_engine", "llama-cpp"
# Its library takes its flash attention where nobody says otherwise. On processors it is the faster way for
# prompts, and the slower one for single tokens behind long texts: a user can have either.
PEERS = {
    one.name: one
    for one in (
        TextPeer("llama.cpp", *_LLAMA_CPP, bits=(4, 8, 16, 32)),
        TextPeer("llama.cpp-no-flash", *_LLAMA_CPP, ("--no-flash-attention",), bits=(4, 8, 16, 32)),
        TextPeer(
            "onnxruntime-genai",
            "device_agent.text_engines.onnxruntime_genai_engine",
            "onnxruntime-genai",
            writer="host.compare.text_peers.onnx_file",
            suffix=".onnx",
        ),
        TextPeer(
            "openvino-genai",
            "device_agent.text_engines.openvino_genai_engine",
            "openvino-genai",
            writer="host.compare.text_peers.openvino_file",
            suffix=".openvino",
        ),
    )
}


def interpreter_of(peer: TextPeer, pythons: Mapping[str, Path]) -> Path | None:
    """The interpreter that has an engine's package; None where there is none.

    Args:
        peer: the engine.
        pythons: that the user gave, by name of the engine. Without one, this interpreter is asked.
    """
    python = given_for(peer, pythons)
    if python is not None:
        # Processes start in another folder. A link stays one: it is how an interpreter finds its environment.
        return python.absolute()
    return Path(sys.executable) if unavailable(peer.name) is None else None


def given_for(peer: TextPeer, paths: Mapping[str, Path]) -> Path | None:
    """What the user gave an engine, or else another one of the same environment; None where nothing.

    Args:
        peer: the engine.
        paths: files or interpreters, by name of the engine.
    """
    same = [one.name for one in PEERS.values() if one.environment == peer.environment]
    return next((paths[name] for name in (peer.name, *same) if name in paths), None)


def write_file(peer: TextPeer, python: Path, folder: Path, path: Path, bits: int) -> None:
    """Write a model as an engine reads it, by a process that ends with it.

    Args:
        peer: the engine.
        python: interpreter that has its package.
        folder: of transformers.
        path: to write.
        bits: of a weight: 4, 8, 16 or 32.

    Raises:
        EngineError: it is not written.
    """
    if bits not in peer.bits:
        raise EngineError(f"{peer.name}: no file with weights of {bits} bits is written for it")
    folder, path = folder.absolute(), path.absolute()
    if peer.writer:
        _run_writer(peer, "write", python, folder, path, bits)
        return
    with EngineProcess(peer.name, peer.module, 1, str(python), peer.arguments) as writer:
        writer.ask("write", folder=str(folder), path=str(path), bits=bits)


def read_file(peer: TextPeer, python: Path, path: Path, model: Path, folder: Path) -> None:
    """Write the weights of an engine's file as a folder of transformers in float32.

    Args:
        peer: the engine.
        python: interpreter that has its package.
        path: of the file.
        model: folder that it was made of, for its configuration.
        folder: to write.

    Raises:
        EngineError: it is not written.
    """
    path, model, folder = path.absolute(), model.absolute(), folder.absolute()
    if peer.writer:
        _run_writer(peer, "original", python, path, model, folder)
        return
    with EngineProcess(peer.name, peer.module, 1, str(python), peer.arguments) as reader:
        reader.ask("original", path=str(path), model=str(model), folder=str(folder))


def _run_writer(peer: TextPeer, action: str, python: Path, *arguments: Path | int) -> None:
    command = [sys.executable, "-m", peer.writer, action, str(python), *map(str, arguments)]
    try:
        done = subprocess.run(
            command,
            cwd=_ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{peer.name}: its file took more than {_TIME_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = one_line(ValueError(lines[-1])) if lines else f"it ended with {done.returncode}"
        raise EngineError(f"{peer.name}: its file is not written: {said}")
