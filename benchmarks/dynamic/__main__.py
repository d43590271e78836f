"""One bundle for a range of lengths against a bundle for each length.

`python -m benchmarks.dynamic --model FILE --shape seq=1..512 --lengths 1,16,128,512 --json FILE`

For each length a bundle of that length alone is made, and measured on this machine in interleaved rounds
beside the bundle of the whole range and ONNX Runtime. `--kernels` adds where the two bundles differ.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.dynamic.bench import Bench
from benchmarks.result_file import add_json_option, heading, write_result
from host.transport import connect
from sdk.cli.forms import parse_lengths, parse_shapes

if TYPE_CHECKING:
    pass
SCHEMA = "edgetlm.dynamic/1"
_LENGTHS = "1,2,7,16,37,64,100,128,200,384,512"
_SHOWN_KERNELS = 6


def _print(length: int, figures: dict[str, Any]) -> None:
    times = "  ".join(
        f"{name} {figures[f'{name}_ms']:8.3f} ms" for name in ("static", "range", "onnxruntime")
    )
    ratios = "  ".join(
        f"{peer}/range {figures[f'{peer}/range']['value']:.2f}" for peer in ("static", "onnxruntime")
    )
    print(f"{length:5d}  {times}  {ratios}  error {figures['max_rel_err']:.1e}", flush=True)
    for kernel, times_us in list(figures.get("kernels_us", {}).items())[:_SHOWN_KERNELS]:
        text = "  ".join(f"{name} {value:8.1f} us" for name, value in times_us.items())
        print(f"       {kernel:<48.48} {text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints a line per length, and writes the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.dynamic", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="ONNX file with one open dimension")
    parser.add_argument("--shape", action="append", required=True, help="as sdk deploy: seq=1..512")
    parser.add_argument("--lengths", default=_LENGTHS, help="to measure at, with commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6, help="of each comparison")
    parser.add_argument("--kernels", action="store_true", help="also the time of each kernel")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    lengths = parse_lengths(given.lengths)
    about = heading("benchmarks.dynamic", SCHEMA, arguments)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder, connect("local") as device:
        bench = Bench(given.model, parse_shapes(given.shape), lengths, given.threads, Path(folder))
        print(f"range built in {bench.build_s:.1f} s", flush=True)
        found: dict[str, Any] = {}
        for length in lengths:
            found[str(length)] = bench.at(device, length, given.rounds, given.kernels)
            _print(length, found[str(length)])
    content = {
        **about,
        "model": given.model.name,
        "shape": given.shape,
        "threads": given.threads,
        "build_range_s": bench.build_s,
        "default_kernels": [name for name, source in bench.kernels.items() if source == "default"],
        "lengths": found,
        "summary": summary(found),
    }
    print(json.dumps(content["summary"]))
    write_result(given.json, content)
    return 0


def summary(found: dict[str, Any]) -> dict[str, float]:
    """Least and geometric mean of the ratios, by peer."""
    ratios = {
        peer: [figures[f"{peer}/range"]["value"] for figures in found.values()]
        for peer in ("static", "onnxruntime")
    }
    return {
        f"{kind} {peer}/range": float(value)
        for peer, values in ratios.items()
        for kind, value in (("least", min(values)), ("geomean", np.exp(np.mean(np.log(values)))))
    }


if __name__ == "__main__":
    raise SystemExit(main())
