"""Tables of whole models and networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.e2e.summary import BestPeer, best_peer, summary_of
from benchmarks.result_file import Result
from benchmarks.tables.table import markdown, short_commit, significant
from host.statistics import geometric_mean, mean_of

_PEERS = {"onnxruntime": "ONNX Runtime", "litert": "LiteRT", "openvino": "OpenVINO"}
# Our own programs in single precision beside those in bfloat16.
_SINGLE = "tvm-fp32"
_PROPOSERS = {
    "tlm": "TLM",
    "tlm-finetuned": "TLM, learning between measurements",
    "gensor": "Gensor",
    "bayesian": "Bayesian optimisation",
    "tree": "its tree",
    "random": "random",
}


def end_to_end(result: Result) -> list[str]:
    """Latency of each model beside its peers, error, and what the deployment took."""
    rows = []
    for name, entry in result.figures["models"].items():
        if "error" in entry:
            rows.append((name, entry["error"], *[""] * 8))
            continue
        latency, speed = entry["latency_ms"], entry["speedup"]
        low, high = entry["bounds"].get("onnxruntime", (None, None))
        bound = "-" if low is None else f"{speed['onnxruntime']:.2f}, {low:.2f} to {high:.2f}"
        times = [significant(latency[one]) if one in latency else "-" for one in ("edgetlm", *_PEERS)]
        best = f"{min(speed.values()):.2f}" if speed else "-"
        cost = f"{entry['seconds']['total']:.0f}", f"{entry['peak_rss_mb']:.0f}"
        rows.append((name, *times, bound, best, f"{entry['max_rel_err']:.0e}", *cost))
    head = ("model", "ours, ms", *_PEERS.values(), "speed to ONNX Runtime, bound", "to the best of them")
    return markdown((*head, "largest error", "seconds", "peak memory, MB"), rows)


def zoo(result: Result) -> list[str]:
    """Latency of each model beside its peers, and the speed beside the best of them."""
    rows, models = [], result.figures["models"]
    engines = [one for one in _PEERS if any(one in entry["latency_ms"] for entry in models.values())]
    for name, entry in models.items():
        latency, peer = entry["latency_ms"], best_peer(entry)
        times = [significant(latency[one]) if one in latency else "-" for one in ("edgetlm", *engines)]
        rows.append((name, *times, entry.get("error", "-") if peer is None else _peer(peer)))
    whole = summary_of(models)
    mean = f"{whole['geometric_mean']:.2f} ({whole['low']:.2f} to {whole['high']:.2f})"
    rows.append(("geometric mean", *[""] * (len(engines) + 1), mean))
    rows.append(("median; least", *[""] * (len(engines) + 1), f"{whole['median']:.2f}; {whole['least']:.2f}"))
    head = ("model", "ours, ms", *(_PEERS[one] for one in engines), "speed to the best of them, bound")
    return markdown(head, rows)


def plans(result: Result) -> list[str]:
    """Speed of each model's best plans beside the plan of the passes, by arm."""
    arms = [f"{kind}_by_{arm}" for arm in ("estimate", "chance") for kind in ("first", "best_measured")]
    figures = result.figures
    rows = [
        (name, *[_bounded(entry[arm]["speed"]) if arm in entry else "-" for arm in arms])
        for name, entry in figures["models"].items()
    ]
    summary = figures["summary"]
    means = [_bounded({"value": summary[arm]}) if arm in summary else "-" for arm in arms]
    head = ("best by the estimate", "best measured of those", "best of chance", "best measured of those")
    return markdown(("model", *head), [*rows, ("geometric mean", *means)])


def plans_without(result: Result) -> list[str]:
    """What kinds of decisions gain in each model: its speed beside the plan that leaves them out.

    A model without such a decision, or whose passes leave it out, gains nothing: it counts as 1 in the mean.
    """
    models, start = result.figures["models"], "first_by_without "
    found = dict.fromkeys(name for entry in models.values() for name in entry if name.startswith(start))
    # All of them come last.
    arms = sorted(found, key=lambda arm: arm == f"{start}all")
    rows: list[tuple[str, ...]] = []
    gains: dict[str, list[float]] = {arm: [] for arm in arms}
    for name, entry in models.items():
        cells = []
        for arm in arms:
            speed = entry[arm]["speed"] if arm in entry else None
            gains[arm].append(1 / speed["value"] if speed else 1.0)
            cells.append(_bounded(_inverse(speed)) if speed else "-")
        rows.append((name, *cells))
    means = [f"{geometric_mean(gains[arm]):.3f}" for arm in arms]
    head = ("model", *(arm.removeprefix(start) for arm in arms))
    return markdown(head, [*rows, ("geometric mean", *means)])


def _inverse(ratio: Mapping[str, float | None]) -> dict[str, float | None]:
    ends = {"value": "value", "low": "high", "high": "low"}
    return {name: 1 / found if (found := ratio.get(end)) else None for name, end in ends.items()}


def _bounded(ratio: Mapping[str, float | None]) -> str:
    low, high = ratio.get("low"), ratio.get("high")
    bounds = "" if low is None or high is None else f", {low:.3f} to {high:.3f}"
    return f"{ratio['value']:.3f}{bounds}"


def bfloat16(result: Result) -> list[str]:
    """Latency of each model in bfloat16 beside our own in single precision and the peers, and its error."""
    rows, models = [], result.figures["models"]
    engines = [one for one in _PEERS if any(one in entry["latency_ms"] for entry in models.values())]
    for name, entry in models.items():
        latency = entry["latency_ms"]
        times = [
            significant(latency[one]) if one in latency else "-" for one in ("edgetlm", _SINGLE, *engines)
        ]
        speed, bounds = entry["speedup"].get(_SINGLE), entry.get("bounds", {}).get(_SINGLE)
        ratio = "-" if speed is None else f"{speed:.2f}"
        ratio += f", {bounds[0]:.2f} to {bounds[1]:.2f}" if bounds else ""
        error = entry.get("error", "-") if entry["max_rel_err"] is None else f"{entry['max_rel_err']:.0e}"
        rows.append((name.partition(":")[0], *times, ratio, error))
    head = (
        "model",
        "bf16, ms",
        "fp32, ms",
        *(_PEERS[one] for one in engines),
        "speed beside fp32, bound",
        "error",
    )
    return markdown(head, rows)


def _peer(peer: BestPeer) -> str:
    bound = "" if peer.low is None else f", {peer.low:.2f} to {peer.high:.2f}"
    return f"{peer.speed:.2f}{bound}"


def evaluation(result: Result) -> list[str]:
    """Speed beside the searched programs, by network, measurements a task and proposer."""
    return _speeds(result.figures["networks"], {})


def new_board(evaluated: Result, tuned: Result) -> list[str]:
    """The same on a new board, with the model that was fine-tuned before in a column of its own."""
    return _speeds(evaluated.figures["networks"], tuned.figures["networks"])


def _speeds(networks: Mapping[str, Any], tuned: Mapping[str, Any]) -> list[str]:
    found = {name: entry for name, entry in networks.items() if "error" not in entry}
    shown = [
        one for one in _PROPOSERS if any(one in row for e in found.values() for row in e["budgets"].values())
    ]
    rows = []
    for name, entry in found.items():
        for budget, row in entry["budgets"].items():
            cells = [_ratio(row.get(method)) for method in shown]
            if tuned:
                cells.append(_ratio(tuned.get(name, {}).get("budgets", {}).get(budget, {}).get("tlm")))
            rows.append((f"{name} ({entry['coverage']:.1%} of its time), {budget}", *cells))
    head = ["network, measurements a task", *(_PROPOSERS[one] for one in shown)]
    return markdown([*head, "TLM, fine-tuned before"] if tuned else head, rows)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def seconds_to_speed(result: Result) -> list[str]:
    """Seconds until the network has the aimed share of the searched speed, by the model and by the search."""
    rows = []
    for name, entry in result.figures["networks"].items():
        reached = entry.get("tuning", {}).get("reached", {}).get("tlm")
        if reached is None:
            continue
        search = entry["tuning"]["search"]
        rows.append(
            (
                name,
                significant(reached["seconds"], 2),
                f"{search['whole_cpu_s']:,.0f} ({search['whole_s']:,.0f})",
                f"{search['reached_cpu_s']:,.0f} ({search['reached_s']:,.0f})",
                f"{reached['times_less_than_whole_cpu']:.0f}, {reached['times_less_than_reached_cpu']:.0f}",
            )
        )
    head = ("", "TLM", "the whole search, processor (clock)", "the search to that point")
    return markdown((*head, "how many times less, of processor time"), rows)


def node_tests(result: Result) -> list[str]:
    """How ONNX's node tests end."""
    summary = result.figures["summary"]
    rows = [(outcome, count) for outcome, count in summary["counts"].items() if count]
    share = (
        f"{summary['considered']:,} of {summary['cases']:,} tests pass in ONNX Runtime; "
        f"{summary['passed_share']:.1%} of these pass through the tvm backend."
    )
    if fixed := summary.get("passed_with_values"):
        share += f" {fixed} of them need the values of an input, which `--value` fixes."
    return [*markdown(("outcome", "tests"), rows), "", share]


def light_commands(result: Result) -> list[str]:
    """Processor seconds of the commands that need no compiler."""
    rows = [(f"`{one['command']}`", f"{one['cpu_s']:.2f}") for one in result.figures["commands"]]
    return markdown(("command", "processor seconds"), rows)


def first_model(result: Result) -> list[str]:
    """What each step takes from the wheel to a verified model."""
    rows = [(one["step"], f"{one['wall_s']:.0f}", f"{one['cpu_s']:.1f}") for one in result.figures["steps"]]
    total = [sum(one[name] for one in result.figures["steps"][:-1]) for name in ("wall_s", "cpu_s")]
    rows.append(("all until the model is deployed", f"{total[0]:.0f}", f"{total[1]:.1f}"))
    return markdown(("step", "seconds", "processor seconds"), rows)


def cold(result: Result) -> list[str]:
    """Seconds and memory of cold deployments."""
    rows = []
    for one in result.figures["models"]:
        wall, cpu, stages = one["wall_s"], one["cpu_s"], one["stages_s"]
        made = sum(stages.get(name, 0.0) for name in ("import", "lower", "propose", "build", "compile"))
        parts = ", ".join(f"{part} {size / 1e6:.0f}" for part, size in one["peak_parts_bytes"].items())
        rows.append(
            (
                *(one["model"], f"{one['file_bytes'] / 1e6:.0f}"),
                *(f"{wall['least']:.1f}", f"{wall['median']:.1f}", f"{cpu['least']:.1f}"),
                *(f"{made:.1f}", f"{stages['measure']:.1f}"),
                *(f"{one['peak_bytes'] / 1e6:.0f}", parts),
            )
        )
    seconds = ("seconds", "median", "of the processor", "until the bundle", "measuring")
    return markdown(("model", "file, MB", *seconds, "peak memory, MB", "of it"), rows)


def pages(result: Result) -> list[str]:
    """What the pages of deployments weigh, and what a checker finds in them."""
    rows = [
        (
            *(one["model"], f"{one['bytes'] / 1000:.0f}", f"{one['gzip_bytes'] / 1000:.0f}", one["texts"]),
            *(f"{one['least_contrast']:.2f}", one["requests"], one["scripts"], len(one["faults"])),
        )
        for one in result.figures["pages"]
    ]
    seen = ("texts", "least contrast", "requests", "scripts", "faults")
    return markdown(("model", "kilobytes", "compressed", *seen), rows)


def documents(result: Result) -> list[str]:
    """What became of the commands and programs of each document."""
    outcomes = ("run", "replaced", "declared", "failed")
    rows = []
    for name, found in result.figures["documents"].items():
        made = [one["outcome"] for one in found["statements"]]
        seconds = sum(one["cpu_s"] for one in found["statements"])
        machine = found["machine"]
        made_by = (
            found["date"][:10],
            short_commit(found["commit"]),
            f"{machine['cpu']}, {machine['cores']} cores",
        )
        rows.append((f"`{name}`", *(made.count(one) for one in outcomes), f"{seconds:.0f}", *made_by))
    total = [result.figures["count"][one] for one in outcomes]
    rows.append(("all", *total, f"{sum(int(row[5]) for row in rows)}", "", "", ""))
    counted = ("as written", "with stand-ins", "not run", "failed")
    return markdown(("document", *counted, "processor seconds", "date", "commit", "machine"), rows)


def trials(result: Result) -> list[str]:
    """Speed of tuned over untuned models, by who proposed the programs."""
    arms = list(dict.fromkeys(arm for found in result.figures["models"].values() for arm in found))
    rows = []
    for name, found in result.figures["models"].items():
        speeds = [_speed(found[arm]["speed"]) if arm in found else "-" for arm in arms]
        product = found.get("product")
        if product is None:
            rows.append((name, *speeds, "", ""))
            continue
        kernels = product["kernels_ms"]
        won = ", ".join(
            f"{_PROPOSERS.get(who, who)} {count}" for who, count in sorted(product["won"].items())
        )
        expected = f"{kernels['before'] / kernels['after']:.2f}"
        rows.append((name, *speeds, expected, f"{product['replaced']} of {product['tasks']}: {won}"))
    mean = result.figures["geometric_mean"]
    if mean:
        rows.append(("geometric mean", *(_speed(mean[arm]) if arm in mean else "-" for arm in arms), "", ""))
    head = ("model", *(f"{arm}, 95%" for arm in arms), "product, as its kernels promise")
    return markdown((*head, "kernels with another program, and whose programs the model has"), rows)


_FIRST_PROGRAMS = {"speed": "learned", "ranked": "ranked", "over_ranked": "learned over ranked"}


def first_programs(result: Result) -> list[str]:
    """Speed of models with the programs that other models' measurements chose, beside chance."""
    models = result.figures["models"]
    shown = [name for name in _FIRST_PROGRAMS if all(name in found for found in models.values())]
    rows = []
    for name, found in models.items():
        speeds = [_speed(found[one]) for one in shown]
        rows.append((name, *speeds, f"{found['changed']} of {found['kernels']}", found["taught_by"]))
    means = [mean_of([found[one]["value"] for found in models.values()]) for one in shown]
    rows.append(("geometric mean", *(_speed(vars(mean)) for mean in means), "", ""))
    titles = [f"{_FIRST_PROGRAMS[one]}, 95%" for one in shown]
    return markdown(("model", *titles, "kernels with another program", "programs that taught"), rows)


_ARMS = {
    "learned": "learned estimate",
    "deployed": "learned estimate where the evidence convinces",
    "estimate": "least estimate",
    "ranked": "random programs, each the best of 16 by the estimate",
    "fastest": "fastest measured program",
}


def learned_estimate(result: Result) -> list[str]:
    """Speed of withheld networks by who chooses their programs."""
    arms, taught = result.figures["arms"], result.figures["shuffled"]
    rows = [
        (title, *_means(arms[arm]), ", ".join(f"{one} {x:.2f}" for one, x in arms[arm]["models"].items()))
        for arm, title in _ARMS.items()
        if arm in arms
    ]
    refused = f"refused {taught['refused']} of {taught['judged']} times"
    rows.append((f"taught with shuffled times, {refused}", _speed(taught["deployed"]), "", ""))
    return markdown(("choice", "over networks, 95%", "over kernels, 95%; least", "networks"), rows)


_SEARCHES = {
    "ranked": "random programs, each the best of 16 by the estimate",
    "mixed": "all programs in random order",
    "improvement": "expected improvement, taught by the model's own times",
    "taught": "the same, taught by the other models too",
}


def measured_search(result: Result) -> list[str]:
    """Speed of models by the number of measurements of each kernel, and beside ranked chance."""
    rounds = [number for number in (1, 2, 4, 8) if number <= result.figures["rounds"]]
    rows = []
    for arm, title in _SEARCHES.items():
        speeds = result.figures["speed"][arm]
        rows.append((title, *(f"{speeds[number]['value']:.3f}" for number in rounds)))
        if arm != "ranked":
            beside = result.figures["over_ranked"][arm]
            rows.append(("- over the first row, 95%", *(_speed(beside[number - 1]) for number in rounds)))
    return markdown(("choice", *(f"{number} measured" for number in rounds)), rows)


def _means(figures: Mapping[str, Any]) -> tuple[str, str]:
    kernels = figures["over_kernels"]
    return _speed(figures["over_models"]), f"{_speed(kernels)}; {kernels['least']:.2f}"


def learned_estimate_curve(result: Result) -> list[str]:
    """The same by the number of programs that taught."""
    curve = result.figures["curve"]
    rows = [
        (f"{_ARMS[arm]}", *(_speed(found[arm]) for found in curve.values()))
        for arm in ("learned", "deployed")
    ]
    return markdown(("choice", *(f"{count} programs" for count in curve)), rows)


_CORRECTIONS = {
    "process": "Gaussian process, cautiously (as deployed until 2026-11-27)",
    "process_mean": "mean of the process",
    "trees": "boosted trees",
    "trees_half": "boosted trees, half of the correction",
    "features": "boosted trees with features of the program",
    "features_half": "the same, half of the correction",
    "half_shuffled": "the same, taught with shuffled times",
    "chance": "a random program",
    "fastest": "the fastest",
}


def residual_trees(result: Result) -> list[str]:
    """Trees beside the process of the learned estimate, by the number of records that taught."""
    rows = []
    by_records = sorted(result.figures["by_records"].items(), key=lambda item: int(item[0]))
    for arm, title in _CORRECTIONS.items():
        over = [found["all"][arm]["over_estimate"] for _, found in by_records]
        beside = [found["all"][arm]["over_process"] for _, found in by_records]
        drawn = [found["drawn"][arm]["over_estimate"] for _, found in by_records]
        rows.append((title, *(_speed(one) for one in over)))
        if arm not in ("process", "chance", "fastest"):
            rows.append(("- over the process", *(_speed(one) for one in beside)))
        rows.append(("- among drawn programs alone", *(_speed(one) for one in drawn)))
    return markdown(("choice", *(f"{count} records" for count, _ in by_records)), rows)


def _speed(figure: Mapping[str, Any]) -> str:
    if figure["low"] is None:
        return f"{figure['value']:.3f}"
    return f"{figure['value']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"
