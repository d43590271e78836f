"""The products of a step of one layer, ours and llama.cpp's, and what each of them executes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.instructions.whole_models import compiled_for
from benchmarks.llm.instructions.vectors import count_traced, runner
from benchmarks.llm.models import SHAPES, Shape, make
from host.deploy.instructions import kernel_calls
from host.emulation.counting import count_kernel
from host.emulation.kernel_run import ArgumentSpec
from host.errors import BuildError
from host.options import CompileOptions

_SHIM = Path(__file__).with_name("llama_cpp.cc")
_GROUP, _ACTIVATION_BYTES = 32, 34
# Bytes of a group of weights with its scale.
_WEIGHT_BYTES = {"int4": 18, "int8": 34}
# A layer's products and a head of the same size, without the other thousands of rows of the head.
_VOCABULARY = 2048
_RISCV = ("-target", "riscv64-linux-musl", "-mcpu=generic_rv64+m+a+f+d+c+v+zba+zfh+zvfh")


@dataclass(frozen=True)
class _Core:
    """How llama.cpp's kernels are made for a target, and which ones it takes there.

    Attributes:
        folder: of llama.cpp's kernels.
        flags: of zig.
        kernels: of each number of bits.
        vector_bits: of RISC-V's registers.
    """

    folder: str
    flags: Sequence[str]
    kernels: Sequence[str] = ("repacked", "rows")
    vector_bits: int = 0


CORES = {
    "raspberry_pi_5": _Core("arm", ("-target", "aarch64-linux-musl", "-mcpu=cortex_a76")),
    "raspberry_pi_4": _Core("arm", ("-target", "aarch64-linux-musl", "-mcpu=cortex_a72")),
    # What it chooses by the length of vectors; the extensions are its defaults.
    "rv64gcv": _Core("riscv", _RISCV, ("rows",), 128),
    "spacemit_k1": _Core("riscv", _RISCV, ("repacked", "rows"), 256),
}


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes:
        rows, columns: of its weight.
        each: counts for each weight by kind, of "edgetlm" and by llama.cpp's kernel.
    """

    rows: int
    columns: int
    each: dict[str, dict[str, float]]

    @property
    def weights(self) -> int:
        """Elements of its weight."""
        return self.rows * self.columns


_Counter = Callable[[bytes, str, Sequence[ArgumentSpec]], dict[str, int]]


def counts_of(sources: Path, target: str, quantize: str, folder: Path) -> Iterator[Product]:
    """The products of a step of a layer with what they execute for each weight.

    Args:
        sources: llama.cpp's.
        target: of `CORES`.
        quantize: "int4" or "int8".
        folder: for scratch files.

    Raises:
        EdgeError: something does not compile, or cannot be counted.
    """
    core = CORES[target]
    counter, library = _counter(core, folder), llama_cpp_library(sources, core, folder)
    content, calls = _ours(target, quantize, folder)
    for name, arguments, rows, columns in calls:
        each = {"edgetlm": counter(content, name, arguments)}
        for kernel in core.kernels:
            given = _arguments(rows, columns, quantize)
            each[kernel] = counter(library, f"{kernel}_{quantize.removeprefix('int')}", given)
        size = rows * columns
        yield Product(
            rows,
            columns,
            {name: {kind: count / size for kind, count in one.items()} for name, one in each.items()},
        )


def llama_cpp_library(sources: Path, core: _Core, folder: Path) -> bytes:
    """llama.cpp's kernels as a library.

    Raises:
        BuildError: they do not compile.
    """
    ggml = sources.absolute() / "ggml"
    kernels = ggml / "src" / "ggml-cpu" / "arch" / core.folder
    flags = [*core.flags, "-O3", "-fPIC", "-DNDEBUG", "-w", "-c", "-fno-sanitize=all"]
    flags += [f"-I{ggml / part}" for part in ("include", "src", "src/ggml-cpu")]
    flags += ['-DGGML_VERSION="x"', '-DGGML_COMMIT="x"']
    objects = []
    for source in (kernels / "quants.c", kernels / "repack.cpp", _SHIM):
        objects.append(str(folder / f"{source.stem}.o"))
        compiler = ["cc"] if source.suffix == ".c" else ["c++", "-std=c++17"]
        _zig(*compiler, *flags, str(source), "-o", objects[-1])
    library = folder / "llama.so"
    _zig("ld.lld", "-shared", "--gc-sections", "--hash-style=gnu", "-o", str(library), *objects)
    return library.read_bytes()


def _zig(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"llama.cpp's kernels do not compile: {' '.join(done.stderr.split())[:300]}")


def _counter(core: _Core, folder: Path) -> _Counter:
    """What counts a kernel of a core."""
    if not core.vector_bits:
        return lambda content, name, arguments: {"instructions": count_kernel(content, name, arguments)}
    program = runner(folder)

    def traced(content: bytes, name: str, arguments: Sequence[ArgumentSpec]) -> dict[str, int]:
        counted = count_traced(program, content, name, arguments, core.vector_bits)
        return {"instructions": counted.instructions, "registers of vectors": counted.registers}

    return traced


def _arguments(rows: int, columns: int, quantize: str) -> tuple[ArgumentSpec, ...]:
    """Of llama.cpp's kernels: weights, activations, rounded activations and results."""
    groups = columns // _GROUP
    return (
        ((rows, groups * _WEIGHT_BYTES[quantize]), "uint8"),
        ((columns,), "float32"),
        ((groups * _ACTIVATION_BYTES,), "uint8"),
        ((rows,), "float32"),
    )


def _ours(
    target: str, quantize: str, folder: Path
) -> tuple[bytes, list[tuple[str, Sequence[ArgumentSpec], int, int]]]:
    """Our library, and the name, arguments, rows and columns of each product of a step, largest first."""
    big = SHAPES["0.1b"]
    sizes = (big.hidden, big.heads, big.key_heads, big.head_size, big.intermediate)
    make(Shape(big.kind, 1, *sizes, _VOCABULARY, tied=False), folder / "model")
    options = CompileOptions(
        model=folder / "model", quantize=quantize, context_tokens=128, threads=1, backend="tvm"
    )
    (folder / "made").mkdir()
    made = compiled_for(options, target, folder / "made")
    found = {}
    for call in kernel_calls(made.lowered):
        shapes = [shape for shape, _ in call.arguments]
        # Panels, groups, vectors, outputs and places of a panel.
        packed = [shape for shape in shapes if len(shape) == 5]
        if "quantised_dense" not in call.name or not packed or shapes[0][0] != 1:
            continue
        columns = int(shapes[0][1])
        rows = int(np.prod(packed[0])) * (2 if quantize == "int4" else 1) // columns
        found[rows, columns] = (call.name, call.arguments, rows, columns)
    return made.library.read_bytes(), list(found.values())
