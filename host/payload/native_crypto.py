"""The native executor's cryptography: zig's standard library, compiled for each kind of processor.

`python -m host.payload.native_crypto ARCHITECTURE FOLDER` makes what a C++ program needs, beside the sources
in device_agent/native/contract, to check bundles as the executor does: `crypto.a` and the header of bounds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from host.build.linker import zig_executable
from host.errors import EdgeError, PayloadError
from host.payload.contract_header import write_headers

_OPTIONS = (
    *("-O", "ReleaseFast", "-fPIC", "-fstrip", "-fsingle-threaded", "-fno-compiler-rt"),
    *("-fno-stack-check", "-fno-stack-protector", "-fno-unwind-tables", "-fno-error-tracing"),
)
# Processors with instructions of SHA-256; which there is, is found out when it runs.
_ACCELERATED = {"x86_64": "baseline+sha+avx2", "aarch64": "baseline+sha2"}


def crypto_units(architecture: str) -> dict[str, tuple[str, ...]]:
    """The options of zig's compiler for each object, by its name."""
    units: dict[str, tuple[str, ...]] = {"crypto": (*_OPTIONS, "-mcpu=baseline")}
    if architecture in _ACCELERATED:
        units["crypto_accelerated"] = (*_OPTIONS, f"-mcpu={_ACCELERATED[architecture]}")
    return units


def crypto_source(native: Path) -> Path:
    """The source of all objects in device_agent/native."""
    return native / "crypto" / "crypto.zig"


def crypto_key(native: Path, target: str, version: str, options: tuple[str, ...]) -> str:
    """SHA-256 of what an object is made of.

    Args:
        native: the folder device_agent/native.
        target: as zig names it.
        version: of zig.
        options: of the compiler.
    """
    made_of = [version, target, *options, crypto_source(native).read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()


def write_crypto(architecture: str, folder: Path) -> None:
    """Make `crypto.a` and the header of bounds for programs of an architecture.

    Args:
        architecture: as zig names it.
        folder: made if need be.

    Raises:
        PayloadError: the compiler refuses, with its first error.
        BuildError: there is no compiler.
    """
    spec = importlib.util.find_spec("device_agent")
    if spec is None or not spec.submodule_search_locations:
        raise PayloadError("device_agent is missing: install edgetlm")
    source = crypto_source(Path(spec.submodule_search_locations[0]) / "native")
    write_headers(folder)
    zig, objects = str(zig_executable()), []
    for name, options in crypto_units(architecture).items():
        objects.append(str(folder / f"{name}.o"))
        target = ["-target", f"{architecture}-linux-gnu"]
        _run([zig, "build-obj", *target, *options, f"-femit-bin={objects[-1]}", str(source)])
    (folder / "crypto.a").unlink(missing_ok=True)
    _run([zig, "ar", "rcs", str(folder / "crypto.a"), *objects])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[0]
        raise PayloadError(f"the verification of bundles cannot be built: {reason}")


if __name__ == "__main__":
    try:
        write_crypto(sys.argv[1], Path(sys.argv[2]))
    except (EdgeError, OSError, IndexError) as failure:
        sys.exit(f"error: {failure}")
