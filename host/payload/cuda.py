"""What a Jetson's GPU needs beside TVM's runtime: CUDA's runtime library, as far as TVM calls it.

TVM's CUDA library out of the wheel wants libcudart.so.13, whatever JetPack is on the board. One of that
name is built here from `device_agent/native/cuda/cudart.c`: it does what is asked of it through the driver
alone, whose interface is the same from JetPack 5 to 7. So neither a CUDA tool kit on the board nor one
library for each of its versions is needed. Only the cubins in a bundle are of the board's CUDA major version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

from host.errors import BuildError, PayloadError
from host.files import is_sealed, seal
from host.places import cache_root, zig_cache

LIBRARY = "libcudart.so.13"
# What the wheel of TVM's own library needs; JetPack 5 has glibc 2.31, JetPack 6 2.35.
GLIBC = "2.28"
_SOURCES = ("cudart.c", "libcudart.map")
_OPTIONS = ("-shared", "-fPIC", "-O2", "-std=c11", "-s")


def cuda_runtime(architecture: str) -> Path:
    """The library for an architecture, built once and then kept.

    Args:
        architecture: "aarch64" or "x86_64".

    Raises:
        PayloadError: it does not compile, or cannot be kept.
    """
    folder = _sources()
    digest = hashlib.sha256(" ".join((architecture, GLIBC, *_OPTIONS)).encode())
    for name in _SOURCES:
        digest.update((folder / name).read_bytes())
    kept = cache_root() / "cuda-runtime" / digest.hexdigest()[:24] / LIBRARY
    if is_sealed(kept):
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".partial-") as name:
            made = Path(name) / LIBRARY
            _compile(folder, made, architecture)
            seal(made, kept)
    except OSError as error:
        raise PayloadError(f"making {kept}: {error.strerror or error}; free some space there") from error
    return kept


def _compile(folder: Path, output: Path, architecture: str) -> None:
    command = [
        *(str(_zig()), "cc", "-target", f"{architecture}-linux-gnu.{GLIBC}", *_OPTIONS),
        *(f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={folder / _SOURCES[1]}"),
        *("-o", str(output), str(folder / _SOURCES[0])),
    ]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(zig_cache(cache_root()))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise PayloadError(f"{LIBRARY} for {architecture} does not compile: {reason}")


def _zig() -> Path:
    # Here, because it brings TVM: most of what asks for payloads finds them made.
    from host.build.linker import zig_executable

    try:
        return zig_executable()
    except BuildError as error:
        raise PayloadError(str(error)) from error


def _sources() -> Path:
    """The sources' folder; they are files of the agent's package."""
    spec = importlib.util.find_spec("device_agent")
    folder = Path(spec.origin).parent / "native" / "cuda" if spec is not None and spec.origin else Path()
    if not (folder / _SOURCES[0]).is_file():
        raise PayloadError(f"{folder / _SOURCES[0]} is missing: install edgetlm again")
    return folder
