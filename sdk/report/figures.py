"""The JSON forms of results. Readers depend on them: they only grow.

Version 2 has the samples that bounds are made of, so that two results can be compared later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sdk.text import data_without_host_paths

if TYPE_CHECKING:
    from host.commands.loadgen import LoadgenResult
    from host.commands.tune import TunedModel
    from host.deploy import DeployResult
    from host.model import LengthRange

TUNE_SCHEMA = "edgetlm.tune/2"


def deploy_json(result: DeployResult) -> dict[str, Any]:
    """The JSON of `sdk deploy`; of the paths of the host only the bundle's, which programs open."""
    return {**data_without_host_paths(_deployed(result)), "bundle": str(result.bundle)}


def _deployed(result: DeployResult) -> dict[str, Any]:
    from sdk.report.compared import since_last

    whole = _measured(result)
    return whole | {"since_last": since_last(result, whole)}


def _measured(result: DeployResult) -> dict[str, Any]:
    from host.deploy import figures
    from sdk.report.kernels.graph import graph_json
    from sdk.report.sides import DEPLOY_SCHEMA

    return {
        "schema": DEPLOY_SCHEMA,
        "name": result.name,
        "device": result.device,
        "backend": result.choice.backend,
        "choice": {
            "why": result.choice.why,
            "ratio": None if result.choice.ratio is None else _bounded(result.choice.ratio),
        },
        "latency_ms": figures.latency_ms(result.measurement),
        "energy_mj": figures.energy_mj(result.measurement.energy),
        "samples": figures.contender(result.contenders[result.choice.backend])["samples"],
        "throttled": not result.measurement.trusted,
        "bundle_bytes": result.bundle_bytes,
        "flops": result.flops,
        "parameters": result.parameters,
        "start": None if result.start is None else figures.start(result.start),
        "date": result.date,
        "memory": None if result.memory is None else result.memory.model_dump(),
        "emulated": result.emulated,
        "simulated": not result.timing.compares,
        "instructions": result.measurement.instructions,
        "verify": figures.verify(result.verification),
        "peers": {name: figures.contender(one) for name, one in result.peers.items()},
        "ratios": {name: _bounded(ratio) for name, ratio in result.ratios.items()},
        "length": None if result.signature.length is None else _range(result.signature.length),
        "lengths": [figures.at_length(one) for one in result.lengths],
        "tasks": [figures.task(task) for task in result.tasks],
        "graph": graph_json(result.calls, [spec.name for spec in result.signature.inputs]),
        "roofline": figures.roofline(result.explained),
        "default_share": result.default_share,
        "fallback": result.fallback,
        "installed": result.installed,
        "gates": [figures.gate(one) for one in result.gates],
        "threads": result.threads,
        "machine": {
            "cpu": result.machine.cpu_name,
            "machine": result.machine.machine,
            "cores": result.machine.cores,
        },
        "state": {
            "before": result.measurement.state_before,
            "after": result.measurement.state_after,
        },
        "seconds": dict(result.seconds),
        "versions": dict(result.versions),
        "command": result.command,
        "tuning": None if result.tuning is None else figures.tuning(result.tuning),
        "power": None if result.power is None else figures.power(result.power),
        "quantisation": None if result.quantisation is None else figures.quantisation(result.quantisation),
        "types": None if result.types is None else result.types.data(),
        "plan": None if result.plan is None else result.plan.data(),
        "speed": None if result.speed is None else figures.text_speed(result.speed),
        "text_peers": None if result.beside is None else figures.text_comparison(result.beside),
        "text": None if result.text is None else figures.text_quality(result.text),
    }


def _bounded(ratio: tuple[float, float, float]) -> dict[str, float]:
    """A ratio with its bounds."""
    return dict(zip(("value", "low", "high"), ratio, strict=True))


def _range(length: LengthRange) -> dict[str, Any]:
    """The lengths that a model serves; those that were measured are in `lengths`."""
    return {"name": length.name, "low": length.low, "high": length.high}


def tune_json(result: TunedModel) -> dict[str, Any]:
    """The JSON of `sdk tune`, without paths of the host."""
    from host.deploy import figures

    whole = {
        "schema": TUNE_SCHEMA,
        "name": result.name,
        "device": result.device,
        "threads": result.threads,
        "records": result.records,
        **figures.tuning(result.tuning),
        "power": None if result.power is None else figures.power(result.power),
        "stages": dict(result.seconds),
        "versions": dict(result.versions),
        "command": result.command,
    }
    found: dict[str, Any] = data_without_host_paths(whole)
    return found


def loadgen_json(results: Sequence[LoadgenResult]) -> dict[str, Any]:
    """The figures that `sdk profile --loadgen` adds; nothing without it."""
    if not results:
        return {}
    from host.commands.loadgen import BOUNDARY

    return {"loadgen": [{**asdict(one), "boundary": BOUNDARY} for one in results]}
