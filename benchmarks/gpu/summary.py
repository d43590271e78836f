"""The ratios that count, out of the figures of all stages.

`python -m benchmarks.gpu.summary KIT RESULTS --json F` writes them as the result of a benchmark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.figures import Item, read
from benchmarks.gpu.kit import PLAN, Kit
from benchmarks.gpu.peers import ONNX_RUNTIME_WAYS, TORCH_WAYS

SCHEMA = "edgetlm.gpu/1"
# The loop in registers whose operations the layers are shares of.
PEAK = "fp16 products, sums in fp32"
_STARTS = {"load_s": "loaded in", "first_run_s": "first inference"}


def summary(kit: Kit, results: Path) -> dict[str, Any]:
    """Ratios of layers and models to their peers; above 1 ours is faster.

    Args:
        kit: that was measured.
        results: folder of the figures.
    """
    stages = {
        name: read(results, name)
        for name in ("machine", "layers", "layer_peers", "models", "model_peers", "programs")
    }
    peak = stages["machine"].get(PEAK, {}).get("operations_per_s")
    layers = _ratios(stages["layers"], stages["layer_peers"], "seconds")
    kinds = {name: task["sizes"]["kind"] for name, task in kit.tasks.items() if task["sizes"] is not None}
    shares = {
        name: entry["operations_per_s"] / peak
        for name, entry in stages["layers"].items()
        if peak and "operations_per_s" in entry
    }
    return {
        "schema": SCHEMA,
        "made": kit.plan["heading"],
        "machine": stages["machine"],
        "products": _spread({name: ratio for name, ratio in layers.items() if kinds[name] == "product"}),
        "convolutions": _spread(
            {name: ratio for name, ratio in layers.items() if kinds[name] == "convolution"}
        ),
        "attention": _spread({name: ratio for name, ratio in layers.items() if kinds[name] == "attention"}),
        "shares_of_peak": shares,
        "models": {
            name: _model(name, entry, stages["model_peers"], stages["machine"].get("context", {}))
            for name, entry in stages["models"].items()
        },
        "programs": sum(len(entry.get("programs", ())) for entry in stages["programs"].values()),
        "errors": {
            f"{stage}: {name}": entry["error"]
            for stage, items in stages.items()
            for name, entry in items.items()
            if "error" in entry
        }
        | _wrong_programs(kit, stages["programs"]),
    }


def _wrong_programs(kit: Kit, items: Mapping[str, Item]) -> dict[str, str]:
    """Programs that compute something else than the first one of their task, by what they decide."""
    return {
        f"programs: {name}: {program['rule']} {json.dumps(program['decisions'])}": found["error"]
        for name, entry in items.items()
        for found, program in zip(entry.get("programs", ()), kit.tasks[name]["programs"], strict=False)
        if "error" in found
    }


def _ratios(ours: Mapping[str, Item], peers: Mapping[str, Item], figure: str) -> dict[str, float]:
    """The peers' time over ours, of what both have."""
    return {
        name: peers[name][figure] / entry[figure]
        for name, entry in ours.items()
        if figure in entry and figure in peers.get(name, {})
    }


def _spread(ratios: Mapping[str, float]) -> dict[str, Any]:
    """Geometric mean and least of ratios, and all of them."""
    if not ratios:
        return {"count": 0, "ratios": {}}
    return {
        "count": len(ratios),
        "geometric_mean": statistics.geometric_mean(ratios.values()),
        "least": min(ratios.values()),
        "ratios": dict(ratios),
    }


def _model(name: str, entry: Item, peers: Mapping[str, Item], context: Item) -> dict[str, Any]:
    """Our latency, and the ratio to each way of torch and of ONNX Runtime.

    `beyond_weights_bytes` is the memory of the GPU that is neither weights nor what every process takes;
    `beyond_bytes` is that without the activations that the bundle states.
    """
    if "latency_s" not in entry:
        return {}

    def ratios(ways: Sequence[str]) -> dict[str, float]:
        found = {way: peers.get(f"{name} {way}", {}).get("latency_s") for way in ways}
        return {way: latency / entry["latency_s"] for way, latency in found.items() if latency is not None}

    kept = ("latency_s", "launch", "load_s", "first_run_s", "memory_bytes", "weights_bytes")
    beyond = {}
    if {"memory_bytes", "weights_bytes"} <= entry.keys() and "bytes" in context:
        taken = entry["memory_bytes"] - entry["weights_bytes"] - context["bytes"]
        beyond = {"beyond_weights_bytes": taken}
        if "activations_bytes" in entry:
            beyond["beyond_bytes"] = taken - entry["activations_bytes"]
    return {
        **{key: entry[key] for key in kept if key in entry},
        **beyond,
        "torch_over_ours": ratios(TORCH_WAYS),
        "onnxruntime_over_ours": ratios(ONNX_RUNTIME_WAYS),
    }


def text_of(found: Mapping[str, Any]) -> str:
    """The same in a few lines."""
    lines: list[str] = []
    for kind in ("products", "convolutions", "attention"):
        spread = found[kind]
        if spread["count"]:
            mean, least = spread["geometric_mean"], spread["least"]
            lines.append(
                f"{kind}: {mean:.3f} of the library's speed, least {least:.3f}, {spread['count']} layers"
            )
    for name, entry in found["models"].items():
        if entry:
            lines.append(f"{name}: {entry['latency_s'] * 1e3:.3f} ms, {_ways(entry)}")
            lines.append(f"  {_start_of(entry)}")
    lines.append(f"{found['programs']} programs, {len(found['errors'])} errors")
    lines += [f"  {name}: {text}" for name, text in list(found["errors"].items())[:20]]
    return "".join(f"{line}\n" for line in lines)


def _start_of(entry: Mapping[str, Any]) -> str:
    """How long a model takes to be ready, and the memory that it takes beside its weights and activations."""
    named = [f"{title} {entry[key]:.3f} s" for key, title in _STARTS.items() if key in entry]
    if "beyond_bytes" in entry:
        named.append(f"{entry['beyond_bytes'] / 1e6:.1f} MB beyond weights and activations")
    return ", ".join(named) or "neither times of its start nor memory"


def _ways(entry: Mapping[str, Any]) -> str:
    named = [f"{ratio:.2f} of torch's {way}" for way, ratio in entry["torch_over_ours"].items()]
    named += [f"{ratio:.2f} of {way}" for way, ratio in entry["onnxruntime_over_ours"].items()]
    return ", ".join(named) or "no peer"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    # Not where the GPU is: what a heading needs is not there.
    from benchmarks.result_file import add_json_option, heading, write_result

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.summary", description=__doc__)
    parser.add_argument("kit", type=Path, help="folder that benchmarks.gpu.prepare wrote")
    parser.add_argument("results", type=Path, help="folder that `python3 -m benchmarks.gpu` wrote")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    if not (options.kit / PLAN).is_file():
        parser.error(f"{options.kit} is no kit: it has no {PLAN}")
    gpu = read(options.results, "machine").get("gpu", {}).get("name")
    if gpu is None:
        parser.error(
            f"{options.results} has no figures of a GPU: measure the kit by python3 -m benchmarks.gpu "
            f"{options.kit} {options.results} on a machine with one"
        )
    found = summary(Kit(options.kit), options.results)
    sys.stdout.write(text_of(found))
    about = heading("benchmarks.gpu.summary", SCHEMA, arguments)
    # `machine` of a heading is the one that writes it.
    kept = {("gpu" if key == "machine" else key): value for key, value in found.items() if key != "schema"}
    write_result(options.json, {**about, "remark": f"Measured on an {gpu}.", **kept})
    return 0


if __name__ == "__main__":
    sys.exit(main())
