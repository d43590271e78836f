"""One scheduled function in, one relocatable object out, through the kernel cache."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi

from host.build.cache import KernelCache
from host.errors import BuildError

# Raised whenever the same scheduled function would give another object: pipeline, options, symbols.
BUILD_VERSION = 1

SYMBOL_PREFIX = "__tvm_ffi_"


@dataclass(frozen=True)
class KernelObject:
    """A compiled kernel.

    Attributes:
        key: SHA-256 of scheduled function, target and versions.
        symbol: name of the function inside the object, made from the key.
        content: the ELF object.
        from_cache: whether it was found rather than compiled.
    """

    key: str
    symbol: str
    content: bytes
    from_cache: bool


def kernel_key(function: tvm.tirx.PrimFunc, target: tvm.target.Target) -> str:
    """SHA-256 over all that decides the object; the function's own name does not."""
    anonymous = function.with_attr("global_symbol", "kernel")
    digest = hashlib.sha256()
    for part in (
        tvm.ir.save_json(anonymous),
        str(target),
        tvm.__version__,
        tvm_ffi.__version__,
        str(BUILD_VERSION),
    ):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def compile_function(function: tvm.tirx.PrimFunc, symbol: str, target: tvm.target.Target) -> bytes:
    """Compile a scheduled function to an object, without the cache.

    TVM and LLVM run outside of the interpreter lock, so that threads compile in parallel.

    Raises:
        BuildError: TVM or LLVM refuses the function.
    """
    named = function.with_attr("global_symbol", symbol)
    try:
        module = tvm.tirx.build(tvm.IRModule({symbol: named}), target=target)
        with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
            path = Path(folder) / "kernel.o"
            module.write_to_file(str(path))
            return path.read_bytes()
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise BuildError(_first_line(error)) from error


def compile_kernel(
    function: tvm.tirx.PrimFunc,
    name: str,
    target: tvm.target.Target,
    cache: KernelCache | None = None,
) -> KernelObject:
    """Compile a scheduled function, or take its object from the cache.

    Args:
        function: scheduled PrimFunc.
        name: what to call it in messages.
        target: what to compile for.
        cache: None compiles always.

    Raises:
        BuildError: it does not compile.
    """
    key = kernel_key(function, target)
    symbol = f"kernel_{key[:24]}"
    content = cache.get(key) if cache is not None else None
    if content is not None:
        return KernelObject(key, symbol, content, from_cache=True)
    try:
        content = compile_function(function, symbol, target)
    except BuildError as error:
        raise BuildError(f"kernel {name}: {error}") from error
    if cache is not None:
        cache.put(key, content)
    return KernelObject(key, symbol, content, from_cache=False)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
