"""Instructions of a decode step's products, beside llama.cpp's kernels.

    python -m benchmarks.llm.instructions --llama-cpp FOLDER [--target raspberry_pi_5] [--quantize int4]
        [--json FILE]

FOLDER holds llama.cpp's sources, such as `vendor/llama.cpp` of llama-cpp-python's source package. Its
kernels for Q4_0 or Q8_0 are compiled by zig for the target's core and run as ours are, by Unicorn, or by qemu
where the target has RISC-V's vectors, so that counts are exact: `repacked` is what it takes where it lays
weights out anew while loading (the default with SDOT, and with vectors of 256 bits), `rows` what it takes
otherwise. Rounding the activations is part of both. Ours are the products of a step of one layer of the 0.1b
model, whose activations have 12 bits with SDOT and int4, and 15 on RISC-V, where llama.cpp's have 8.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.llm.instructions.products import CORES, Product, counts_of
from benchmarks.result_file import add_json_option, heading, write_result

SCHEMA = "edgetlm.llm_instructions/2"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm.instructions", description=__doc__)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="folder of its sources")
    parser.add_argument("--target", choices=CORES, default="raspberry_pi_5")
    parser.add_argument("--quantize", choices=("int4", "int8"), default="int4")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="edgetlm-instructions-") as scratch:
        folder = Path(scratch)
        products = []
        for product in counts_of(options.llama_cpp, options.target, options.quantize, folder):
            products.append(product)
            print(f"{product.rows} x {product.columns}, a weight: {_said(product.each)}", flush=True)
    total = of_all(products)
    print(f"all: {_said(total)}")
    for kind in total["edgetlm"]:
        ratios = [
            f"{total['edgetlm'][kind] / one[kind]:.2f} of {name}"
            for name, one in total.items()
            if name != "edgetlm"
        ]
        print(f"{kind}: {', '.join(ratios)}")
    results = heading("benchmarks.llm.instructions", SCHEMA, arguments)
    written = [{"rows": one.rows, "columns": one.columns, **one.each} for one in products]
    results |= {"target": options.target, "quantize": options.quantize, "products": written, "all": total}
    write_result(options.json, results)
    return 0


def of_all(products: Sequence[Product]) -> dict[str, dict[str, float]]:
    """Counts for each weight of all products."""
    weights = sum(one.weights for one in products)
    first = products[0].each
    return {
        name: {
            kind: sum(one.each[name][kind] * one.weights for one in products) / weights
            for kind in first[name]
        }
        for name in first
    }


def _said(each: dict[str, dict[str, float]]) -> str:
    return "; ".join(
        f"{name} " + ", ".join(f"{count:.3f} {kind}" for kind, count in counted.items())
        for name, counted in each.items()
    )


if __name__ == "__main__":
    sys.exit(main())
