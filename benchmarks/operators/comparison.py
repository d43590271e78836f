"""Finalists side by side: verified, then measured in interleaved rounds with all others stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from benchmarks.operators.bench import Bench, Built, Program
from benchmarks.operators.library import layout_share
from benchmarks.operators.methods import LIBRARY
from benchmarks.operators.subject import Subject
from host.build import build_model
from host.errors import BuildError, EdgeError, EngineError, MeasureError, SessionLost

# Relative to the largest expected value, as a bundle is verified: Winograd's algorithm is less exact.
TOLERANCE = 1e-3


@dataclass
class FinalistComparison:
    """The results of the rounds.

    Attributes:
        rounds_s: seconds of every round, by contender; rounds correspond.
        errors: largest error of every contender, relative to the largest expected value.
        failed: reasons of those that dropped out.
        layout_share: share of the library's time that was left out, for entering and leaving its layout.
        session_s: median seconds of the library's whole call.
    """

    rounds_s: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    layout_share: float = 0.0
    session_s: float = 0.0


def compare_finalists(
    bench: Bench, subject: Subject, finalists: Mapping[str, Program], library: bool
) -> FinalistComparison:
    """Verify and measure.

    Args:
        bench: the open device.
        subject: the operator.
        finalists: program by method.
        library: whether the library takes part.
    """
    comparison = FinalistComparison()
    built: dict[str, Built] = {}
    for name, program in finalists.items():
        try:
            built[name] = bench.build(program)
            comparison.errors[name] = verify(bench, subject, program)
        except EdgeError as error:
            comparison.failed[name] = str(error)
            continue
        if comparison.errors[name] > TOLERANCE:
            comparison.failed[name] = f"wrong: off by {comparison.errors[name]:.1e} of the largest value"
    running = {name: one for name, one in built.items() if name not in comparison.failed}
    if library:
        _prepare_library(bench, subject, comparison)
    _rounds(bench, subject, running, library and LIBRARY not in comparison.failed, comparison)
    return comparison


def verify(bench: Bench, subject: Subject, program: Program) -> float:
    """Largest error of a program within its model, relative to the largest expected value.

    Raises:
        BuildError: the model does not build with it.
    """
    subject = subject.form(program.direct)
    path = bench.folder / f"{subject.operator.name}-{len(list(bench.folder.iterdir()))}.so"
    stats = build_model(
        subject.lowered,
        {subject.task.name: program.function},
        path,
        cache=bench.cache,
    )
    if stats.refused:
        raise BuildError("; ".join(stats.refused.values()))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    arguments = [tvm.runtime.tensor(array) for array in (*subject.inputs, *subject.lowered.parameters)]
    return relative_error(machine["main"](*arguments).numpy(), subject.expected)


def relative_error(made: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected value; infinite for another shape or NaN."""
    if made.shape != expected.shape or not np.isfinite(made).all():
        return float("inf")
    return float(np.abs(made - expected).max() / max(float(np.abs(expected).max()), 1e-30))


def _prepare_library(bench: Bench, subject: Subject, comparison: FinalistComparison) -> None:
    session = bench.library
    comparison.layout_share = layout_share(
        subject.library_model, subject.library_inputs, bench.options.threads
    )
    session.resume()
    try:
        session.load(subject.library_model)
        session.set_inputs(subject.library_inputs)
        [made] = session.run(subject.library_inputs)
        comparison.errors[LIBRARY] = relative_error(made, subject.library_expected)
    except (EngineError, SessionLost) as error:
        comparison.failed[LIBRARY] = str(error)
    finally:
        session.pause()


def _rounds(
    bench: Bench,
    subject: Subject,
    running: Mapping[str, Built],
    library: bool,
    comparison: FinalistComparison,
) -> None:
    """Interleave; contenders with equal programs share their measurement."""
    shared: dict[str, list[str]] = {}
    for name, one in running.items():
        shared.setdefault(one.key, []).append(name)
    programs = {one.key: one for one in running.values()}
    order = np.random.default_rng(bench.options.seed)
    entrants = sorted(programs) + ([LIBRARY] if library else [])
    times: dict[str, list[float]] = {entrant: [] for entrant in entrants}
    for _ in range(bench.options.rounds):
        for entrant in map(str, order.permutation(entrants)):
            if entrant == LIBRARY:
                times[entrant].append(_time_library(bench))
                continue
            try:
                times[entrant].append(bench.time(subject, programs[entrant]))
            except (MeasureError, SessionLost) as error:
                comparison.failed.update(dict.fromkeys(shared[entrant], str(error)))
    for entrant, samples in times.items():
        kept = 1.0 - comparison.layout_share if entrant == LIBRARY else 1.0
        for name in [LIBRARY] if entrant == LIBRARY else shared[entrant]:
            if name not in comparison.failed:
                comparison.rounds_s[name] = [seconds * kept for seconds in samples]
    if library:
        comparison.session_s = float(np.median(times[LIBRARY]))


def _time_library(bench: Bench) -> float:
    bench.session.pause()
    bench.library.resume()
    try:
        measurement = bench.library.measure(
            energy=False,
            warmup_s=0.01,
            warmup_runs=2,
            min_repeats=bench.options.samples,
            max_repeats=bench.options.samples,
            min_time_s=0.0,
            min_sample_s=bench.options.sample_ms * 1e-3,
        )
    finally:
        bench.library.pause()
        bench.session.resume()
    return min(measurement.times_s)
