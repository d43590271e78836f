"""MLPerf's LoadGen drives a bundle: the scenarios SingleStream and Offline, with MLCommons' own package.

LoadGen runs on this host. A query goes over the connection to the device and its answer comes back, so that
latencies hold the transport as well; the times of `sdk profile` are those of the device's own clock.
Reference: MLPerf Inference Rules, "Scenarios" and "LoadGen Operation".
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.contract.text import printable
from host import bundle
from host.errors import EdgeError, MeasureError, UserError

SCENARIOS = ("SingleStream", "Offline")
BOUNDARY = "host to device and back, with the transport"
_DETAIL = "mlperf_log_detail.txt"
_MARK = ":::MLLOG "
_PERCENTILES = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
_QUERIES = 64
# Queries that are timed for the plan.
_PLANNED = 9


@dataclass(frozen=True)
class LoadgenResult:
    """The figures of LoadGen for one scenario.

    Attributes:
        scenario: "SingleStream" or "Offline".
        valid: whether LoadGen takes the run for valid by its own rules, of a least time and number.
        queries: samples that were answered.
        samples_per_s: of them, a second; None where LoadGen gives none for the scenario.
        latency_ms: by percentile ("50", "99.9"), and "mean"; of whole queries from the host.
        seconds: least duration that was asked for.
        seed: of the order of the samples.
        version: of LoadGen.
    """

    scenario: str
    valid: bool
    queries: int
    samples_per_s: float | None
    latency_ms: Mapping[str, float]
    seconds: float
    seed: int
    version: str


def run_scenarios(
    path: Path,
    scenarios: Sequence[str],
    device: str = "local",
    threads: int = 0,
    seconds: float = 10.0,
    seed: int = 0,
    trust: str = "signed",
) -> tuple[LoadgenResult, ...]:
    """Drive a bundle by each scenario; its golden inputs are the samples.

    Args:
        path: bundle directory or zip.
        scenarios: of `SCENARIOS`.
        device: name of the device.
        threads: threads for the model; 0 takes the bundle's own.
        seconds: least duration of a scenario.
        seed: of the order of the samples.
        trust: in the signer of the bundle: "signed" or "unsigned".

    Raises:
        UserError: there is no such scenario, or `mlcommons-loadgen` is not installed.
        MeasureError: LoadGen gave no figures, or the device is simulated.
        EdgeError: of the bundle or the device.
    """
    check_scenarios(scenarios)
    from host.transport import connect

    with tempfile.TemporaryDirectory(prefix="edgetlm-") as name:
        directory = bundle.unpacked(path, Path(name))
        manifest = bundle.load(directory)
        samples = [
            list(case.inputs) for case in bundle.golden_cases(directory, manifest) if not case.function
        ]
        with connect(device) as connected:
            if not connected.timing.compares:
                raise MeasureError(
                    f"--loadgen times the queries of this host, and {printable(device, 200)} is no board: "
                    "leave --loadgen out, or name a board"
                )
            bundle.require_processor(manifest, str(path), connected.describe(), device)
            used = threads or manifest.threads
            with connected.open_session(manifest.backend, threads=used) as session:
                session.load(directory, trust)
                return tuple(
                    _run(session.run, samples, one, seconds, seed, Path(name) / f"loadgen-{one}")
                    for one in scenarios
                )


def check_scenarios(scenarios: Sequence[str]) -> None:
    """Refuse scenarios that are not there, and a missing package.

    Raises:
        UserError: see `run_scenarios`.
    """
    for one in scenarios:
        if one not in SCENARIOS:
            raise UserError(
                f"--loadgen {printable(one, 60)}: use {' or '.join(SCENARIOS)}, or both with a comma"
            )
    if len(set(scenarios)) < len(scenarios):
        raise UserError("--loadgen: give each scenario once")
    _library()


def _library() -> Any:
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise UserError("--loadgen needs MLCommons' LoadGen: pip install 'edgetlm[loadgen]'") from error
    return mlperf_loadgen


def _run(
    run: Callable[[list[np.ndarray]], object],
    samples: Sequence[list[np.ndarray]],
    scenario: str,
    seconds: float,
    seed: int,
    folder: Path,
) -> LoadgenResult:
    """Run one scenario; `folder` is made for LoadGen's logs."""
    from importlib.metadata import version

    loadgen = _library()
    folder.mkdir()
    failures: list[Exception] = []
    answered = 0

    def answer(queries: Sequence[Any]) -> None:
        nonlocal answered
        for query in queries:
            # An exception must not reach LoadGen's threads, and a query without an answer would end no test.
            if not failures:
                try:
                    run(samples[query.index])
                    answered += 1
                except (EdgeError, OSError, RuntimeError, TypeError, ValueError) as error:
                    failures.append(error)
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(query.id, 0, 0)])

    run(samples[0])
    settings = _settings(loadgen, scenario, seconds, seed, _expected_s(run, samples[0]))
    logs = _logs(loadgen, folder)
    system = loadgen.ConstructSUT(answer, lambda: None)
    library = loadgen.ConstructQSL(len(samples), len(samples), lambda _: None, lambda _: None)
    try:
        # A file that is not there: nothing of the working folder changes the settings.
        loadgen.StartTestWithLogSettings(system, library, settings, logs, str(folder / "audit.config"))
    finally:
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
    if failures:
        raise failures[0]
    found = _results(folder / _DETAIL)
    rate = found.get("result_samples_per_second", found.get("result_qps_without_loadgen_overhead"))
    return LoadgenResult(
        scenario=scenario,
        valid=found["result_validity"] == "VALID",
        queries=answered,
        samples_per_s=None if rate is None else float(rate),
        latency_ms=_latency_ms(found),
        seconds=seconds,
        seed=seed,
        version=version("mlcommons-loadgen"),
    )


def _logs(loadgen: Any, folder: Path) -> Any:
    """LoadGen's settings of its logs: into a folder, and nothing on the terminal."""
    outputs = loadgen.LogOutputSettings()
    outputs.outdir = str(folder)
    outputs.copy_summary_to_stdout = False
    logs = loadgen.LogSettings()
    logs.log_output = outputs
    logs.enable_trace = False
    return logs


def _latency_ms(found: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds of a query by percentile, and their mean, out of LoadGen's results."""
    latencies = {
        name.rstrip("0").rstrip("."): found[key] / 1e6
        for name in _PERCENTILES
        if (key := f"result_{name}_percentile_latency_ns") in found
    }
    return {**latencies, "mean": found["result_mean_latency_ns"] / 1e6}


def _expected_s(run: Callable[[list[np.ndarray]], object], sample: list[np.ndarray]) -> float:
    """Seconds of a query, by which LoadGen plans how many it asks at once.

    The fastest of a few: a run of fewer queries than its duration has room for is not valid.
    """
    import time

    times = []
    for _ in range(_PLANNED):
        begin = time.perf_counter()
        run(sample)
        times.append(time.perf_counter() - begin)
    return max(1e-6, min(times))


def _settings(loadgen: Any, scenario: str, seconds: float, seed: int, expected_s: float) -> Any:
    settings = loadgen.TestSettings()
    settings.scenario = loadgen.TestScenario.__members__[scenario]
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = round(seconds * 1e3)
    settings.min_query_count = _QUERIES if scenario == "SingleStream" else 1
    # A single stream ends by its duration. Twice the queries are there, since later ones may be faster.
    settings.single_stream_expected_latency_ns = max(1, round(expected_s * 1e9 / 2))
    settings.offline_expected_qps = 1.0 / expected_s
    for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        setattr(settings, name, seed)
    return settings


def _results(path: Path) -> dict[str, Any]:
    """The results in LoadGen's log.

    Raises:
        MeasureError: there are none.
    """
    found: dict[str, Any] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(_MARK):
                entry = json.loads(line.removeprefix(_MARK))
                if str(entry["key"]).startswith("result_"):
                    found[entry["key"]] = entry["value"]
    if not {"result_validity", "result_mean_latency_ns"} <= found.keys():
        raise MeasureError("LoadGen wrote no results: run the command again with --verbose")
    return found
