"""The files that a board needs to run models: made on the host and sent; a board downloads nothing.

The agent itself (`host.payload.agent`) is the same for all boards. For each engine there is one payload: the
Python executor's runtime where wheels exist, the native executor elsewhere, and the wheels of other engines.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from host.errors import PayloadError
from host.files import file_hash
from host.payload import cuda
from host.payload import python as python_runtime
from host.payload.agent import AgentArchive, agent_archive
from host.payload.archive import content_hash, files_below, total_bytes, write_compressed
from host.payload.engines import engine_parts
from host.payload.licences import cuda_licences, missing_licences, native_licences
from host.payload.wheels import Part, Platform, unpacked
from host.places import cache_root
from targets import Board, MachineDescription

__all__ = [
    "AgentArchive",
    "Payload",
    "PayloadError",
    "agent_archive",
    "payload_for",
    "platform_of",
]

NATIVE_EXECUTABLE = "edgetlm-executor"
# What every distribution with Python 3.8 has at least; used where an older agent does not report it.
_USUAL_GLIBC = (2, 28)


@dataclass(frozen=True)
class Payload:
    """The files that one engine needs on one kind of board.

    Attributes:
        kind: "python" (a folder for the executor's path) or "native" (a folder with `edgetlm-executor`).
        engine: that it serves.
        folder: on this host.
        sha256: of the names, modes and contents of its files; the same on every host.
        size_bytes: of its files in all.
    """

    kind: str
    engine: str
    folder: Path
    sha256: str
    size_bytes: int

    def files(self) -> dict[str, Path]:
        """Its files by their path in the folder, in order."""
        return files_below(self.folder)

    def write_archive(self, target: Path) -> None:
        """Write it as a tar.gz archive whose uncompressed content has the hash `sha256`."""
        write_compressed(self.files(), target)


def payload_for(description: MachineDescription, board: Board, engine: str) -> Payload:
    """The payload of an engine for a machine; made if this host has not got it.

    Args:
        description: what the machine's agent says of it.
        board: its kind.
        engine: "tvm", "onnxruntime" or "litert".

    Raises:
        PayloadError: there is none, with the reason.
    """
    platform = platform_of(description)
    if engine != "tvm":
        return _python_payload(engine, engine_parts(engine, platform), platform)
    if board.payload == "native" or python_runtime.why_not(platform) is not None:
        return _native_payload(engine, board.architecture)
    on_gpu = board.gpu is not None and "cuda" in description.software
    extra = {}
    if on_gpu:
        extra = {f"tvm/lib/{cuda.LIBRARY}": cuda.cuda_runtime(platform.architecture), **cuda_licences()}
    payload = _python_payload(engine, python_runtime.runtime_parts(on_gpu), platform, extra)
    if payload.size_bytes > python_runtime.LARGEST_BYTES:
        raise PayloadError(
            f"the runtime for {platform} has {payload.size_bytes} bytes, at most"
            f" {python_runtime.LARGEST_BYTES} may be sent; drop more of it in host.payload.python"
        )
    return payload


def platform_of(description: MachineDescription) -> Platform:
    """The platform of a machine, which decides the wheels that run there.

    Raises:
        PayloadError: its agent says no version of Python.
    """
    python = _version(description.software.get("python", ""))
    if python is None:
        raise PayloadError("the agent does not say its version of Python: install the agent again")
    return Platform(
        description.machine, python, _version(description.software.get("glibc", "")) or _USUAL_GLIBC
    )


def _version(text: str) -> tuple[int, int] | None:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _native_payload(engine: str, architecture: str) -> Payload:
    from host.payload.native import native_executor

    executable = native_executor(architecture)
    files = {NATIVE_EXECUTABLE: executable, **native_licences()}
    folder = _kept(f"native-{architecture}-{_file_key(executable)}", files)
    return _payload("native", engine, folder)


def _file_key(path: Path) -> str:
    return file_hash(path)[:16]


def _python_payload(
    engine: str, parts: Sequence[Part], platform: Platform, extra: Mapping[str, Path] | None = None
) -> Payload:
    folders = [unpacked(part, platform) for part in parts]
    files: dict[str, Path] = {}
    for folder in folders:
        files.update(files_below(folder))
    for part in parts:
        files.update(missing_licences(part.requirement))
    files.update(extra or {})
    made_of = [str(path) for path in (*folders, *(extra or {}).values())]
    key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    folder = _kept(f"python-{platform.architecture}-{engine}-{key}", files)
    return _payload("python", engine, folder)


def _payload(kind: str, engine: str, folder: Path) -> Payload:
    files = files_below(folder)
    return Payload(kind, engine, folder, content_hash(files), total_bytes(files.values()))


def _same(found: Mapping[str, Path], wanted: Mapping[str, Path]) -> bool:
    """Whether two sets of files have the same names, and byte for byte the same content."""
    if found.keys() != wanted.keys():
        return False
    return all(file_hash(found[key]) == file_hash(path) for key, path in wanted.items())


def _kept(name: str, files: dict[str, Path]) -> Path:
    """A folder of the cache that holds exactly these files; made anew where a byte of it differs."""
    target = cache_root() / "payloads" / name
    if _same(files_below(target), files):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".partial-") as scratch:
            made = Path(scratch) / "made"
            for key, path in files.items():
                copy = made / key
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                copy.chmod(0o755 if key == NATIVE_EXECUTABLE else 0o644)
            shutil.rmtree(target, ignore_errors=True)
            made.replace(target)
    except OSError as error:
        raise PayloadError(
            f"the payload {name} cannot be kept in {target.parent}: {error.strerror}; free some space or set"
            " XDG_CACHE_HOME"
        ) from error
    return target
