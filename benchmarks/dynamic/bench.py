"""The bundle of a range of lengths, and what it is measured beside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from host import bundle
from host.compare.comparison import measured
from host.compare.entrants import EntrantResult, ratio_between
from host.compare.runner import Effort, compare_sessions
from host.compare.verification import relative_error
from host.compile.ranged_model import inputs_at
from host.deploy import CompileOptions, compile_bundle

if TYPE_CHECKING:
    from host.model import GoldenCase, Signature
    from host.transport import Device, Session


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
        """The figures of the ranged bundle and of a static one at one length."""
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
