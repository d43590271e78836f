"""ONNX Runtime's `InferenceSession` for ONNX files and bundles, compiled on first use.

    import sdk.inference_session as ort          # in place of: import onnxruntime as ort
    session = ort.InferenceSession("model.onnx")
    [scores] = session.run(None, {"pixel_values": image})

An ONNX file is compiled for this machine in a process of its own, once: its bundle is kept in the cache of
the user, by the content of the model, the sizes of its open dimensions, the threads and the version.
The bundle then runs in this process, by the runtime that boards have (`device_agent.inference_session`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from device_agent.contract.trust import FILE, TrustStore
from device_agent.inference_session import (
    BundleError,
    NodeArg,
    Provider,
    SessionOptions,
    get_available_providers,
    get_device,
    processor_identity,
)
from device_agent.inference_session import InferenceSession as BundleSession
from host.errors import ModelFileError, UserError
from host.files import file_hash
from host.places import cache_root

__all__ = [
    "BundleError",
    "InferenceSession",
    "NodeArg",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]
_FOLDER = "sessions"


class InferenceSession(BundleSession):
    """A session of a bundle, or of an ONNX file that is compiled for this machine where it was not before.

    Args:
        path_or_bytes: an ONNX file, its bytes, or a bundle (directory or zip).
        sess_options: `add_free_dimension_override_by_name` gives open dimensions of an ONNX file their sizes.
        providers: see `device_agent.inference_session`.
        provider_options: see `device_agent.inference_session`.

    Raises:
        UserError: the model cannot be compiled; the message is that of `sdk compile`.
        ModelFileError: there is no such file.
        BundleError, ValueError: see `device_agent.inference_session`.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        folder, ours = _bundle_of(path_or_bytes, sess_options)
        if ours:
            _trust_own_key()
        super().__init__(folder, sess_options, providers, provider_options)


def _bundle_of(given: str | bytes | os.PathLike[str], options: Any) -> tuple[Path, bool]:
    """The directory of the bundle, and whether it was made here."""
    if isinstance(given, bytes):
        return _compiled_bytes(given, options), True
    path = Path(given)
    if path.is_dir():
        return path, False
    from host.model_file import detect_format

    if path.suffix == ".zip":
        return _unpacked(path), False
    # Refused by what it is, where it is no model.
    detect_format(path)
    return _compiled(path, options), True


def _unpacked(path: Path) -> Path:
    """A bundle's directory in the cache, by the content of its zip."""
    from host import bundle

    if not path.is_file():
        raise ModelFileError(f"{path}: no such file or directory")
    return _kept(file_hash(path), lambda scratch: bundle.unpacked(path, scratch))


def _compiled_bytes(content: bytes, options: Any) -> Path:
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        path = Path(name) / "model.onnx"
        path.write_bytes(content)
        return _compiled(path, options)


def _compiled(path: Path, options: Any) -> Path:
    """The bundle of a model for this machine, from the cache or new."""
    arguments = ["--threads", str(int(getattr(options, "intra_op_num_threads", 0)))]
    # ONNX Runtime's own options do not give their sizes.
    sizes: Mapping[str, int] = getattr(options, "free_dimensions", {})
    for name, size in sorted(sizes.items()):
        arguments += ["--shape", f"{name}={size}"]
    digest = hashlib.sha256(json.dumps([_version(), processor_identity(), *arguments]).encode())
    for file in _files_of(path):
        digest.update(bytes.fromhex(file_hash(file)))

    def compile_to(scratch: Path) -> Path:
        output = scratch / "bundle"
        command = [sys.executable, "-m", "sdk.cli", "compile", str(path.absolute()), "-o", str(output)]
        # In the scratch folder, no project file of the application's own folder has a say.
        done = subprocess.run(
            [*command, *arguments],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"the compiler ended with code {done.returncode}"]
            text = lines[-1].removeprefix("error: ")
            if "--shape" in text:
                text += "; in a session, SessionOptions.add_free_dimension_override_by_name(NAME, SIZE)"
            raise UserError(printable(text, 1000))
        return output

    return _kept(digest.hexdigest(), compile_to)


def _files_of(path: Path) -> Iterator[Path]:
    """The model's file, and those of its weights where they lie in others beside it."""
    yield path
    if path.suffix != ".onnx":
        return
    import onnx
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except DecodeError:
        # The compiler says what is wrong with it.
        return
    tensors = _tensors_of(graph)
    entries = (entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location")
    for name in sorted(set(entries)):
        beside = path.parent / name
        if beside.is_file() and beside.resolve().is_relative_to(path.parent.resolve()):
            yield beside


def _tensors_of(graph: Any) -> Iterator[Any]:
    """Constants of a graph, of its nodes, and of the graphs within them."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors_of(inner)


def _kept(digest: str, make: Callable[[Path], Path]) -> Path:
    """A bundle of the cache, made where it is missing; whole or not there at all.

    Args:
        digest: of all that decides about the bundle.
        make: makes it in an empty folder.
    """
    folder = cache_root() / _FOLDER
    place = folder / digest[:32]
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as scratch:
            made = make(Path(scratch))
            # Another process may have been faster, with the same bundle.
            with contextlib.suppress(OSError):
                made.rename(place)
    if not place.is_dir():
        raise UserError(f"{place} cannot be written: see that the folder is writable and has space left")
    return place


def _trust_own_key() -> None:
    """What is signed here runs here, as where `sdk.connect` starts this machine's agent."""
    from host.keys import host_key
    from host.transport.local import default_store

    key = host_key()
    TrustStore(str(default_store().absolute() / FILE)).enrol(key.public, key.name)


def _version() -> str:
    from importlib.metadata import version

    return version("edgetlm")
