"""Objects to shared libraries with the lld of the ziglang package: no C toolchain is needed."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import tvm

from host.build.cache import KernelCache
from host.build.elf import undefined_symbols
from host.build.kernel import SYMBOL_PREFIX, KernelObject, compile_kernel
from host.build.target import architecture_of
from host.errors import BuildError, DeviceFull
from host.files import NO_SPACE, writing

# lld's names of the ELF flavours (ld.lld -m).
_EMULATIONS = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv"}

# What a process that runs kernels has for certain: the runtime, and the memory functions that LLVM calls.
_RUNTIME_PREFIXES = ("TVM", "__tvm_", "__TVM")
_LIBC_FUNCTIONS = frozenset({"memcpy", "memmove", "memset"})
# Functions of libm that TIR's intrinsics become, in their fp64 and fp32 form.
_LIBM_FUNCTION = re.compile(
    r"(a?(cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp(2|10|m1)?|fabs|floor|fma|fmax|fmin|fmod|hypot"
    r"|ldexp|lgamma|log(2|10|1p)?|nearbyint|nextafter|pow|rint|round|roundeven|sqrt|tgamma|trunc)f?"
)


def zig_executable() -> Path:
    """The zig binary inside the ziglang package.

    Raises:
        BuildError: the package is not installed.
    """
    spec = importlib.util.find_spec("ziglang")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    if folder is None or not (folder / "zig").is_file():
        raise BuildError("the linker is missing: install the package ziglang")
    return folder / "zig"


def link_shared(
    objects: Sequence[Path], output: Path, architecture: str, aliases: Mapping[str, str] | None = None
) -> None:
    """Link objects to a shared library that needs the TVM runtime, libm and libc of its process.

    Args:
        objects: relocatable objects.
        output: the library; written whole or not at all.
        architecture: "x86_64", "aarch64" or "riscv64".
        aliases: further names of defined symbols, new name first.

    Raises:
        BuildError: lld fails, or an object calls what no device has.
        DeviceFull: no space left.
    """
    partial = output.with_name(f".{output.name}.{os.getpid()}.{threading.get_ident()}.partial")
    try:
        needed = _needed_from_outside(objects)
        with writing(output), tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
            folder = Path(name)
            libraries = [_libm_stub(folder, architecture)] if needed else []
            lines = ["-shared", "--hash-style=gnu", "--gc-sections", "--strip-debug"]
            lines += ["-m", _EMULATIONS[architecture]]
            lines += [f'--defsym="{new}={old}"' for new, old in (aliases or {}).items()]
            lines += ["-o", f'"{partial}"', *(f'"{path}"' for path in [*objects, *libraries])]
            # Arguments go through a file: a large model's aliases exceed the command line's limit.
            response = folder / "arguments"
            response.write_text("\n".join(lines))
            _run_lld([f"@{response}"], output.name)
            partial.replace(output)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BuildError(f"linking {output}: {reason}; choose another place") from error
    finally:
        partial.unlink(missing_ok=True)


def _needed_from_outside(objects: Sequence[Path]) -> set[str]:
    """Symbols of libm that objects call, after all others were found to be harmless."""
    undefined = set[str]().union(*(undefined_symbols(path.read_bytes()) for path in objects))
    undefined = {name for name in undefined if not name.startswith(_RUNTIME_PREFIXES)} - _LIBC_FUNCTIONS
    foreign = {name for name in undefined if not _LIBM_FUNCTION.fullmatch(name)}
    if foreign:
        raise BuildError(
            f"kernels call {', '.join(sorted(foreign))}, which no device has; lower that operator"
        )
    return undefined


def _libm_stub(folder: Path, architecture: str) -> Path:
    """An empty libm.so.6: linked against, it makes the loader bring in the device's own."""
    empty, stub = folder / "empty", folder / "libm.so.6"
    empty.write_bytes(b"")
    options = ["-shared", "-m", _EMULATIONS[architecture], "-soname", stub.name]
    _run_lld([*options, "-o", str(stub), "--format=binary", str(empty)], stub.name)
    return stub


def _run_lld(arguments: Sequence[str], what: str) -> None:
    command = [str(zig_executable()), "ld.lld", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        # A full disk says nothing about the program: its record would be that of a failure.
        # A block that is missing under the output, which lld maps into memory, ends it with SIGBUS.
        full = done.returncode == -signal.SIGBUS or any(os.strerror(number) in said for number in NO_SPACE)
        if full:
            raise DeviceFull(f"no space left while linking {what}: free some and run again")
        reason = said.splitlines() or [f"lld ended with code {done.returncode}; run again"]
        raise BuildError(f"linking {what} failed: {reason[0]}")


def link_kernels(
    kernels: Mapping[str, KernelObject], output: Path, architecture: str, extra: Sequence[Path] = ()
) -> Path:
    """Link compiled kernels so that each is callable by its name from the loaded library.

    Args:
        kernels: object by function name; equal functions share one object.
        output: the library.
        architecture: of all objects.
        extra: further objects, e.g. the packed executable of the virtual machine.

    Raises:
        BuildError: lld fails.
        DeviceFull: no space left.
    """
    distinct = {kernel.key: kernel for kernel in kernels.values()}
    aliases = {SYMBOL_PREFIX + name: SYMBOL_PREFIX + kernel.symbol for name, kernel in kernels.items()}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        paths = [Path(folder) / f"{key}.o" for key in distinct]
        with writing(Path(folder)):
            for path, kernel in zip(paths, distinct.values(), strict=True):
                path.write_bytes(kernel.content)
        link_shared([*paths, *extra], output, architecture, aliases)
    return output


def build_kernel_library(
    functions: Mapping[str, tvm.tirx.PrimFunc],
    output: Path,
    target: tvm.target.Target,
    cache: KernelCache | None = None,
) -> Path:
    """Compile scheduled functions into one library, for measuring them.

    Args:
        functions: scheduled PrimFunc by the name to call it by.
        output: path of the library; a new one each time, since a process that has loaded a library
            gets that one again for the same path, whatever the file holds by then.
        target: what to compile for.
        cache: where to look first.

    Raises:
        BuildError: compiling or linking fails.
    """
    kernels = {name: compile_kernel(function, name, target, cache) for name, function in functions.items()}
    return link_kernels(kernels, output, architecture_of(target))
