"""One bundle for a range of lengths against a bundle for each length.

`python -m benchmarks.dynamic --model FILE --shape seq=1..512 --lengths 1,16,128,512 --json FILE`

For each length a bundle of that length alone is made, and measured on this machine in interleaved rounds
beside the bundle of the whole range and ONNX Runtime. `--kernels` adds where the two bundles differ.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.result_file import add_json_option, heading, write_result
from host import bundle
from host.compare.comparison import measured
from host.compare.entrants import EntrantResult, ratio_between
from host.compare.runner import Effort, compare_sessions
from host.compare.verification import relative_error
from host.compile.ranged_model import inputs_at
from host.deploy import CompileOptions, compile_bundle
from host.transport import connect
from sdk.cli.forms import parse_lengths, parse_shapes

if TYPE_CHECKING:
    from host.model import GoldenCase, Signature
    from host.transport import Device, Session

SCHEMA = "edgetlm.dynamic/1"
_LENGTHS = "1,2,7,16,37,64,100,128,200,384,512"
_SHOWN_KERNELS = 6


class Bench:
    """The bundle of the range, loaded beside ONNX Runtime, and what it is compared with.

    Args:
        model: ONNX file with one open dimension.
        shapes: as `--shape`.
        lengths: to measure at; () takes a few.
        threads: of each engine.
        folder: for bundles.
    """

    def __init__(
        self, model: Path, shapes: dict[str, Any], lengths: tuple[int, ...], threads: int, folder: Path
    ) -> None:
        self._model = model
        self._shapes = shapes
        self._threads = threads
        self._folder = folder
        start = time.perf_counter()
        options = CompileOptions(model, backend="tvm", shapes=shapes, lengths=lengths, threads=threads)
        manifest = compile_bundle(options, "local", folder / "range")
        self.build_s = time.perf_counter() - start
        self.signature: Signature = manifest.typed_signature()
        self.golden: tuple[GoldenCase, ...] = bundle.golden_cases(folder / "range", manifest)
        self.kernels = {kernel.name: kernel.source for kernel in manifest.kernels}

    def at(self, device: Device, length: int, rounds: int, kernels: bool) -> dict[str, Any]:
        """Figures at one length."""
        static = self._folder / f"at{length}"
        start = time.perf_counter()
        options = CompileOptions(
            self._model, backend="tvm", shapes=self._of_one(length), threads=self._threads
        )
        compile_bundle(options, "local", static)
        build_s = time.perf_counter() - start
        inputs = inputs_at(self.signature, self.golden, length)
        with ExitStack() as stack:
            sessions: dict[str, Session] = {}
            for name, engine, path in (
                ("static", "tvm", static),
                ("range", "tvm", self._folder / "range"),
                ("onnxruntime", "onnxruntime", self._model),
            ):
                sessions[name] = stack.enter_context(device.open_session(engine, threads=self._threads))
                sessions[name].load(path)
            outputs = {name: session.run(inputs) for name, session in sessions.items()}
            errors = [
                relative_error(np.asarray(ours), np.asarray(theirs))
                for ours, theirs in zip(outputs["range"], outputs["onnxruntime"], strict=True)
            ]
            results = compare_sessions(sessions, inputs, Effort(rounds=rounds, windows=0))
            figures = _figures(results) | {"build_static_s": build_s, "max_rel_err": max(errors)}
            if kernels:
                figures["kernels_us"] = _kernels(sessions, inputs)
        for file in static.iterdir():
            file.unlink()
        return figures

    def _of_one(self, length: int) -> dict[str, Any]:
        return {
            name: tuple(length if isinstance(size, tuple) else size for size in shape)
            for name, shape in self._shapes.items()
        }


def _figures(results: Mapping[str, EntrantResult]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        f"{name}_ms": measurement.median_s * 1e3 for name, measurement in measured(results).items()
    }
    for peer in ("static", "onnxruntime"):
        ratio = ratio_between(results[peer], results["range"])
        assert ratio is not None
        figures[f"{peer}/range"] = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return figures


def _kernels(sessions: dict[str, Session], inputs: Sequence[np.ndarray]) -> dict[str, dict[str, float]]:
    """Microseconds of all calls of a kernel in one run, in both bundles; names may differ between them."""
    found: dict[str, dict[str, float]] = {}
    for name in ("static", "range"):
        profiles = [sessions[name].profile(inputs, runs=10) for _ in range(5)]
        for kernel in profiles[0]:
            best = min(profile[kernel].seconds for profile in profiles)
            found.setdefault(kernel, {})[name] = best * 1e6
    return dict(sorted(found.items(), key=lambda item: -item[1].get("range", 0.0)))


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
