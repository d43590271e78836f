"""The native executor's cryptography: zig's standard library, compiled for each kind of processor."""

from __future__ import annotations

import hashlib
from pathlib import Path

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
