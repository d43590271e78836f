"""Kernels of CUDA source as a shared library of this machine or of another one that is emulated."""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from host.build.linker import zig_executable
from tests.cuda_emulator.inline_ptx import closing, translated

_ENTRY = re.compile(r'extern "C" __global__ void [^;{]*?(\w+)\(([^()]*)\) \{')
_SHARED = re.compile(
    r"(?:extern )?__shared__ (?:alignas\(\d+\)|__align__\(\d+\))?"
    r"(?P<kind>[^;\[=]*?)\s(?P<name>\w+)\[(?P<size>[^\]]*)\];"
)
_LOOP = re.compile(r"\bfor \((?:[^(){}]|\([^(){}]*\))*\) \{")
# A function of one copy that arrives late.
_COPYING = re.compile(r"void (\w+)\([^(){}]*\) \{[^{}]*cp\.async\.c[ag]\.")
# What a vector or a number is read or written through: a pointer of its type.
_THROUGH_POINTER = re.compile(
    r"\*\s*(?:\(|(?:reinterpret|static)_cast<)\s*(?:const )?(\w+(?: \w+)*)\s*\*\s*[)>]\s*\("
)
# An array in registers, which is aligned to vectors there.
_IN_REGISTERS = re.compile(r"(?m)^( +)(?!return\b)((?:unsigned |signed )?\w+ \w+\[\d+\];)")
# Headers that the source names and that threads.h stands for.
_EMPTY = (
    "cstdint", "type_traits", "cuda.h", "cuda_fp16.h", "cuda/std/cstdint", "cuda/std/type_traits",
    "math_constants.h",
)  # fmt: skip
_HEADERS = ("threads.h", "banks.h", "instructions.h")
# What a block of any GPU here can have.
_LARGEST_SHARED = 233472

REASONS = {
    1: "a barrier is not reached by all threads",
    2: "an instruction of a warp is not reached by all of its threads",
    3: "an address is not aligned",
    4: "more copies are on their way than the emulation keeps, or one of more bytes than it has",
    5: "an address is outside of the tensors",
}


def text_of(name: str) -> str:
    """A header of this folder."""
    return Path(__file__).with_name(name).read_text()


def entries(source: str) -> dict[str, list[str]]:
    """Types of the parameters of each entry function, by its name."""
    return {
        name: [_kind(text) for text in parameters.split(",")] for name, parameters in _ENTRY.findall(source)
    }


def parameter_names(source: str) -> dict[str, list[str]]:
    """Names of the parameters of each entry function."""
    return {
        name: [text.split()[-1].lstrip("*") for text in parameters.split(",")]
        for name, parameters in _ENTRY.findall(source)
    }


def _kind(parameter: str) -> str:
    return parameter.replace("__restrict__", "").rsplit(maxsplit=1)[0]


def host_source(source: str, callers: str) -> str:
    """C++ of kernels, which is linked with what runs them.

    Args:
        source: CUDA C++ with inline PTX.
        callers: functions that call `run` with a `kernel`.
    """
    kernels = with_alignment(translated(with_shared_memory(source)))
    return "\n".join([*map(text_of, _HEADERS), kernels, callers])


def with_alignment(source: str) -> str:
    """The source with a check of each address that something is read or written through."""
    return _THROUGH_POINTER.sub(r"*aligned<\1>(", _IN_REGISTERS.sub(r"\1alignas(16) \2", source))


def with_shared_memory(source: str) -> str:
    """The source with arrays of shared memory that count how they are accessed.

    Blocks run one after the other, so what the threads of a block share can be static.
    """
    names = []

    def declared(found: re.Match[str]) -> str:
        names.append(found["name"])
        return f"static Shared<{found['kind'].strip()}, {found['size'] or _LARGEST_SHARED}> {found['name']};"

    source = _LOOP.sub(r"\g<0> next_turn();", _SHARED.sub(declared, source))
    for name in names:
        # An address of an element is not an access.
        for opening in (f"&({name}[", f"&{name}["):
            while (start := source.find(opening)) >= 0:
                inside = start + len(opening)
                end = closing(source, inside - 1)
                rest = source[end + 1 + opening.startswith("&(") :]
                source = f"{source[:start]}({name} + ({source[inside:end]})){rest}"
    numbers = itertools.count(1)
    for function in set(_COPYING.findall(source)):
        called = re.compile(rf"(?<=[;{{}}\n])(\s*){function}\(")
        source = called.sub(
            lambda found: f"{found[1]}copy_place = {next(numbers)}, {found[0].lstrip()}", source
        )
    if not names:
        return source
    # What follows a declaration are accesses.
    used = re.compile(rf"\b({'|'.join(names)})\b(?!;)")
    return used.sub(lambda found: f"{found[0]}({next(numbers)})", source)


def compiled(text: str, architecture: str | None = None) -> bytes:
    """A shared library.

    Args:
        text: of `host_source`.
        architecture: as zig names it; this machine's if None.

    Raises:
        AssertionError: it does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        folder = Path(name)
        (folder / "blocks.o").write_bytes(_runner_of_blocks(architecture))
        return _compiled(text, folder, architecture, ["-shared", str(folder / "blocks.o"), "-lm"])


@functools.cache
def _runner_of_blocks(architecture: str | None) -> bytes:
    """What runs the blocks of any kernel, an object."""
    text = "\n".join(["#define RUNS_BLOCKS", *map(text_of, (*_HEADERS, "blocks.h"))])
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        return _compiled(text, Path(name), architecture, ["-c"])


def _compiled(text: str, folder: Path, architecture: str | None, options: Sequence[str]) -> bytes:
    source, output = folder / "kernel.cc", folder / "kernel"
    source.write_text(text)
    for header in _EMPTY:
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / header).write_text("")
    command = [str(zig_executable()), "cc", "-x", "c++", "-std=c++17", "-fPIC", "-w"]
    # Compiling takes longer than the run: code of unrolled loops is long, and -O0 keeps all of it.
    command += ["-O1", "-fno-unroll-loops", "-fno-vectorize", "-fno-slp-vectorize"]
    command += ["-fno-sanitize=all", "-fno-threadsafe-statics", "-nostdinc++", "-nostdlib++"]
    if architecture is not None:
        command += ["-target", f"{architecture}-linux-gnu.2.31"]
    # What follows the source is no C++.
    command += ["-I", str(folder), "-o", str(output), str(source), "-x", "none", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return output.read_bytes()


def emulator_text() -> str:
    """Everything that decides what a kernel's code becomes, for caches to tell by."""
    names = (*_HEADERS, "blocks.h", "inline_ptx.py", "source.py")
    return "".join(text_of(name) for name in names)
