"""Instructions of a decode step's products on aarch64, beside llama.cpp's kernels.

    python -m benchmarks.llm.instructions --llama-cpp FOLDER [--target raspberry_pi_5] [--json FILE]

FOLDER holds llama.cpp's sources, such as `vendor/llama.cpp` of llama-cpp-python's source package. Its
kernels for Q4_0 are compiled by zig for the target's core, and run by Unicorn as ours are, so that counts
are exact: `repacked` is what it takes where it lays weights out anew while loading (the default with SDOT),
`rows` what it takes otherwise. Rounding the activations is part of both. Ours are the products of a step of
one layer of the 0.1b model in int4, whose activations have 12 bits where llama.cpp's have 8.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.instructions.whole_models import compiled_for
from benchmarks.llm.models import SHAPES, Shape, make
from benchmarks.result_file import add_json_option, heading, write_result
from host.deploy.instructions import kernel_calls
from host.emulation.counting import count_kernel
from host.errors import BuildError
from host.options import CompileOptions

SCHEMA = "edgetlm.llm_instructions/1"
_GROUP, _WEIGHT_BYTES, _ACTIVATION_BYTES = 32, 18, 34
# A layer's products and a head of the same size, without the other thousands of rows of the head.
_VOCABULARY = 2048
_CORES = {"raspberry_pi_5": "cortex_a76", "raspberry_pi_4": "cortex_a72"}
# As our kernels are called: tensors of weights, activations, rounded activations and results.
_SHIM = """
#include <cstddef>
#include <cstdint>
extern "C" {
void ggml_gemv_q4_0_4x4_q8_0(int, float*, size_t, const void*, const void*, int, int);
void ggml_vec_dot_q4_0_q8_0(int, float*, size_t, const void*, size_t, const void*, size_t, int);
void quantize_row_q8_0(const float*, void*, int64_t);
struct Tensor {
  char* data;
  int32_t device, number, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
};
struct Argument { int32_t kind, unused; Tensor* tensor; };
static float* rounded(Argument* a, int* rows, int* columns) {
  *rows = (int)a[3].tensor->shape[0];
  *columns = (int)a[1].tensor->shape[0];
  quantize_row_q8_0((const float*)a[1].tensor->data, a[2].tensor->data, *columns);
  return (float*)a[3].tensor->data;
}
int __tvm_ffi_repacked(void*, Argument* a, int, void*) {
  int rows, columns;
  float* out = rounded(a, &rows, &columns);
  ggml_gemv_q4_0_4x4_q8_0(columns, out, rows, a[0].tensor->data, a[2].tensor->data, 1, rows);
  return 0;
}
int __tvm_ffi_rows(void*, Argument* a, int, void*) {
  int rows, columns;
  float* out = rounded(a, &rows, &columns);
  for (int row = 0; row < rows; ++row) {
    const char* weights = a[0].tensor->data + (size_t)row * (columns / 32 * 18);
    ggml_vec_dot_q4_0_q8_0(columns, out + row, 0, weights, 0, a[2].tensor->data, 0, 1);
  }
  return 0;
}
}
"""


def llama_cpp_library(sources: Path, core: str, folder: Path) -> bytes:
    """llama.cpp's kernels for aarch64 as a library.

    Raises:
        BuildError: they do not compile.
    """
    ggml = sources.absolute() / "ggml"
    shim, arm = folder / "shim.cpp", ggml / "src" / "ggml-cpu" / "arch" / "arm"
    shim.write_text(_SHIM)
    flags = ["-target", "aarch64-linux-musl", f"-mcpu={core}", "-O3", "-fPIC", "-DNDEBUG", "-w", "-c"]
    flags += [f"-I{ggml / part}" for part in ("include", "src", "src/ggml-cpu")]
    flags += ['-DGGML_VERSION="x"', '-DGGML_COMMIT="x"', "-fno-sanitize=all"]
    objects = []
    for source in (arm / "quants.c", arm / "repack.cpp", shim):
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


def theirs(library: bytes, rows: int, columns: int) -> dict[str, float]:
    """Instructions for each weight of a product, by kernel."""
    groups = columns // _GROUP
    arguments = (
        ((rows, groups * _WEIGHT_BYTES), "uint8"),
        ((columns,), "float32"),
        ((groups * _ACTIVATION_BYTES,), "uint8"),
        ((rows,), "float32"),
    )
    return {name: count_kernel(library, name, arguments) / (rows * columns) for name in ("repacked", "rows")}


def ours(target: str, folder: Path) -> dict[tuple[int, int], float]:
    """Instructions for each weight of the products of a step, by rows and columns."""
    big = SHAPES["0.1b"]
    sizes = (big.hidden, big.heads, big.key_heads, big.head_size, big.intermediate)
    make(Shape(big.kind, 1, *sizes, _VOCABULARY, tied=False), folder / "model")
    options = CompileOptions(
        model=folder / "model", quantize="int4", context_tokens=128, threads=1, backend="tvm"
    )
    made = compiled_for(options, target, folder / "made")
    content, found = made.library.read_bytes(), {}
    for call in kernel_calls(made.lowered):
        shapes = [shape for shape, _ in call.arguments]
        packed = [shape for shape, dtype in call.arguments if dtype == "uint8"]
        if "quantised_dense" not in call.name or not packed or shapes[0][0] != 1:
            continue
        weights = 2 * int(np.prod(packed[0]))
        columns = int(shapes[0][1])
        counted = count_kernel(content, call.name, call.arguments)
        found[weights // columns, columns] = counted / weights
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm.instructions", description=__doc__)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="folder of its sources")
    parser.add_argument("--target", choices=_CORES, default="raspberry_pi_5")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    products: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="edgetlm-instructions-") as scratch:
        folder = Path(scratch)
        (folder / "made").mkdir()
        library = llama_cpp_library(options.llama_cpp, _CORES[options.target], folder)
        for (rows, columns), counted in ours(options.target, folder).items():
            entry = {"rows": rows, "columns": columns, "edgetlm": counted, **theirs(library, rows, columns)}
            products.append(entry)
            print(
                f"{rows} x {columns}: {counted:.3f} instructions a weight; llama.cpp {entry['repacked']:.3f} "
                f"repacked, {entry['rows']:.3f} by rows",
                flush=True,
            )
    weights = [one["rows"] * one["columns"] for one in products]
    total = {
        name: sum(one[name] * size for one, size in zip(products, weights, strict=True)) / sum(weights)
        for name in ("edgetlm", "repacked", "rows")
    }
    ratios = [total["edgetlm"] / total[name] for name in ("repacked", "rows")]
    print(f"all: {ratios[0]:.2f} of repacked, {ratios[1]:.2f} of by rows")
    results = heading("benchmarks.llm.instructions", SCHEMA, arguments)
    write_result(options.json, results | {"target": options.target, "products": products, "all": total})
    return 0


if __name__ == "__main__":
    sys.exit(main())
