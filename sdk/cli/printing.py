"""Results as text for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk.cli.commands.taught import print_taught
from sdk.cli.console import print_error, print_line
from sdk.report.compared import compared_text, tokens_text
from sdk.report.quantisation.language_model import peer_lines, speed_lines, text_lines
from sdk.report.quantisation.text import quantisation_lines, type_lines

if TYPE_CHECKING:
    from host.calibration import Calibration
    from host.commands.loadgen import LoadgenResult
    from host.commands.tune import TunedModel
    from host.compare.entrants import EntrantResult
    from host.compare.selection import VariantSelection
    from host.compile.explanation import Explanation
    from host.deploy import DeployResult
    from host.deploy.gates import Gate
    from host.manifest import LayerPart
    from host.model import Energy, Measurement
    from host.statistics import Estimate
    from host.tuning.result import TuneResult
    from sdk.model import Deployment
    from targets import HardwareModel

# Layers of a kernel that a terminal lists.
_SHOWN_LAYERS = 12


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write figures to a file, whole or not at all.

    Raises:
        DeviceFull: no space left.
    """
    from host.files import write_whole, writing

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{json.dumps(content, indent=1)}\n".encode())


def print_deployment(deployment: Deployment) -> None:
    """Print the end of `sdk deploy`: what was installed, figures, and what to type next."""
    result = deployment.result
    verdict = result.verification
    _print_title(result, result.processor)
    print_line(f"backend   {result.choice.backend} ({result.choice.why})")
    print_line(f"verified  largest relative error {verdict.max_rel_err:.1e}, allowed {verdict.tolerance:.0e}")
    if verdict.remark:
        print_line(f"{'':<9} {verdict.remark}")
    if result.speed is not None:
        for number, line in enumerate(speed_lines(result.speed)):
            print_line(f"{'' if number else 'texts':<9} {line}")
    if result.beside is not None:
        for number, line in enumerate(peer_lines(result.beside)):
            print_line(f"{'' if number else 'beside':<9} {line}")
    if result.text is not None:
        for number, line in enumerate(text_lines(result.text)):
            print_line(f"{'' if number else 'text':<9} {line}")
    if result.quantisation is not None:
        for line in quantisation_lines(result.quantisation):
            print_line(line)
    if result.types is not None:
        for line in type_lines(result.types):
            print_line(line)
    if result.signature.length is not None:
        length = result.signature.length
        print_line(f"serves    {length.name}={length.low}..{length.high}, any length of it")
    if result.timing.decides:
        print_latencies(result)
    else:
        print_instructions(result)
    if result.memory is not None:
        from host.compile.memory_cap import described

        print_line(f"memory    {described(result.memory)}")
    if result.tasks:
        print_line(f"kernels   {kernels_text(result)}")
    if result.tuning is not None:
        print_tuning(result.tuning)
    if result.power is not None:
        print_power(result.power)
    for number, line in enumerate(result.plan.lines if result.plan is not None else ()):
        print_line(f"{'' if number else 'plan':<9} {line}")
    for one in result.gates:
        print_line(f"gate      {gate_text(one)}{'' if one.passed else ': NOT MET'}")
    print_line(f"bundle    {result.bundle}{' (installed and active)' if result.installed else ''}")
    print_line(f"report    {deployment.report}")
    _print_summary(result)


def _print_title(result: DeployResult | TunedModel, processor: str) -> None:
    print_line("")
    print_line(f"{result.name} on {result.device}: {processor}, {result.threads} thread(s)")
    if result.timing.banner:
        print_line(f"note: {result.timing.banner}")


def _print_summary(result: DeployResult) -> None:
    """Four lines for who reads no table: faster than what, by how much, at how many watts, and what next."""
    print_line("")
    if result.context and result.timing.decides:
        print_line(f"Decodes   {tokens_text(result)}, {result.context} at most")
    print_line(f"Compared  {compared_text(result)}")
    print_line(f"Power     {energy_text(result.measurement.energy)}")
    state = "installed and active" if result.installed else "not installed"
    why = ": a gate is not met" if result.failed_gates else ""
    print_line(f"State     {result.choice.backend}, verified, {state} on {result.device}{why}")
    # A model that is not installed has no name on the device.
    runs = result.name if result.installed else result.bundle
    if result.context and result.device == "local":
        print_line(f"Next      sdk chat {runs}")
        return
    arrays = " --input INPUTS.npz" if result.signature.inputs else ""
    print_line(f"Next      sdk run {runs}{arrays} --device {result.device}")


def gate_text(one: Gate) -> str:
    """A gate with its limit and what was found."""
    return f"{one.name} {one.limit:.12g}: {one.text}"


def print_failed_gates(results: Sequence[DeployResult]) -> bool:
    """One line of an error for each gate that is not met; returns whether there is one."""
    failed = [(result, one) for result in results for one in result.failed_gates]
    for result, one in failed:
        print_error(f"error: {result.name} on {result.device}: the gate {gate_text(one)}")
    return bool(failed)


def print_instructions(result: DeployResult) -> None:
    """One line per contender where times say nothing."""
    print_line(f"latency   {result.timing.why_unknown(result.device)}")
    for index, name in enumerate([result.choice.backend, *result.peers]):
        one = result.contenders[name]
        count = None if one.measurement is None else one.measurement.instructions
        reason = "not counted" if one.measurement is not None else f"not run: {one.reason}"
        text = reason if count is None else f"{count / 1e6:.3f} million instructions a run"
        print_line(f"{'executed' if index == 0 else '':<9} {name:<12} {text}")


def print_latencies(result: DeployResult) -> None:
    """One line per contender, the installed one first; of a range one line per contender and length."""
    order = [result.choice.backend, *result.peers]
    if result.lengths:
        print_lengths(result, order)
        return
    word = "latency" if result.timing.compares else "simulated"
    for index, name in enumerate(order):
        print_line(f"{word if index == 0 else '':<9} {name:<12} {contender_text(result.contenders[name])}")


def print_lengths(result: DeployResult, order: Sequence[str]) -> None:
    """A line per measured length and contender, and the ratio of their times to ours."""
    for one in result.lengths:
        for index, name in enumerate(order):
            text = latency_text(one.measurements[name]) if name in one.measurements else "not measured"
            ratio = f", {name} / tvm = {one.ratios[name][0]:.2f}" if name in one.ratios else ""
            print_line(f"{f'at {one.length}' if index == 0 else '':<9} {name:<12} {text}{ratio}")
    for name in order:
        if result.contenders[name].measurement is None:
            print_line(f"{'':<9} {name:<12} {contender_text(result.contenders[name])}")


def contender_text(one: EntrantResult) -> str:
    """Figures of one engine, or why there are none."""
    if one.measurement is None:
        if one.verification is not None and not one.verification.passed:
            return f"not measured: {one.verification.message}"
        return f"not measured: {one.reason}"
    return latency_text(one.measurement)


def latency_text(measurement: Measurement) -> str:
    """The median with the 10th and 90th percentiles, in milliseconds, and the number of samples."""
    return (
        f"{measurement.median_s * 1e3:.3f} ms "
        f"(10% {measurement.p10_s * 1e3:.3f}, 90% {measurement.p90_s * 1e3:.3f}, n {measurement.n})"
    )


def energy_text(energy: Energy) -> str:
    """Millijoules of one run, or why there are none."""
    if energy.gross_j is None:
        return f"unavailable: {energy.source}"
    watts = "" if energy.mean_w is None else f", {energy.mean_w:.2f} W"
    return f"{energy.gross_j * 1e3:.4g} mJ a run{watts} ({energy.kind} by {energy.source}, {energy.boundary})"


def kernels_text(result: DeployResult) -> str:
    """How many kernels each source made, and the default schedules' share of the time."""
    counts = Counter(task.source for task in result.tasks)
    parts = [f"{count} {source}" for source, count in sorted(counts.items())]
    text = ", ".join(parts)
    recalled = sum(task.from_database for task in result.tasks)
    if recalled:
        text += f" ({recalled} of them measured before)"
    defaults = [task.name for task in result.tasks if task.source == "default"]
    if defaults:
        text += f"; on a default schedule {result.default_share:.1%} of the time: {', '.join(defaults)}"
    beside = [task.name for task in result.tasks if task.processor == "cpu"]
    if beside:
        copied = sum(task.copied_bytes for task in result.tasks)
        text += f"; on the CPU: {', '.join(beside)}, {copied} bytes to and from it a run"
    return text


def print_tuned(result: TunedModel) -> None:
    """Print the end of `sdk tune`."""
    _print_title(result, result.machine.cpu_name)
    print_tuning(result.tuning)
    if result.power is not None:
        print_power(result.power)
    print_line(f"records   {result.records}")


def print_tuning(tuning: TuneResult) -> None:
    """Print the tasks that each proposer won, and the gain of the tuning."""
    from sdk.report.tuning import STOPPED

    now = f", {tuning.trials_now} of them now" if tuning.trials_now != tuning.trials else ""
    free = f", beside the first programs of {tuning.free_now} kernels" if tuning.free_now else ""
    print_line(f"tuned     {tuning.trials} trials{now}{free}; {STOPPED.get(tuning.stopped, 'interrupted')}")
    print_line(
        f"kernels   {tuning.model_s * 1e3:.3f} ms a run in all, "
        f"with the first program of each {tuning.first_model_s * 1e3:.3f} ms"
    )
    for index, one in enumerate(tuning.proposers):
        failed = f", {one.failed} failed" if one.failed else ""
        print_line(
            f"{'won by' if index == 0 else '':<9} {one.name:<12} {one.tasks_won} kernels, "
            f"{one.time_won:.0%} of the time, {one.trials} tried{failed}"
        )
    for name, reason in tuning.skipped.items():
        print_line(f"not tuned {name}: {reason}")
    for number, training in enumerate(tuning.trainings, start=1):
        used = "in use" if training.proposer is not None else "not used"
        print_line(
            f"{'learned' if number == 1 else '':<9} withheld error {training.before:.3f} -> "
            f"{training.after:.3f}, {used}, {training.seconds:.1f} s"
        )
        if training.why:
            print_line(f"{'':<9} {training.why}")


def print_power(power: VariantSelection) -> None:
    """Print the selected variant and why, the gain of tuning, and the front of latency and energy."""
    print_line(f"taken     {power.why}")
    if power.gain is not None:
        text = f"untuned / tuned = {power.gain.value:.2f}{_bounds(power.gain)} in time"
        if power.energy_gain is not None:
            text += f", {power.energy_gain.value:.2f}{_bounds(power.energy_gain)} in energy"
        print_line(f"gain      {text}")
    front = power.front
    for index, point in enumerate(front.front if len(power.points) > 1 else ()):
        assert point.latency_s is not None and point.gross_j is not None
        watts = f", {point.mean_w:.2f} W" if point.mean_w is not None else ""
        print_line(
            f"{'front' if index == 0 else '':<9} {point.latency_s.value * 1e3:.3f} ms, "
            f"{point.gross_j.value * 1e3:.3g} mJ a run{watts}: {point.title}"
        )
    if front.reason and (power.modes or power.objective != "latency"):
        print_line(f"front     none: {front.reason}")
    if power.advice:
        print_line(f"advice    {power.advice}")


def _bounds(estimate: Estimate) -> str:
    return f" ({estimate.low:.2f} to {estimate.high:.2f})" if estimate.bounded else ""


def print_profile(result: DeployResult) -> None:
    """Print the end of `sdk profile`."""
    _print_title(result, result.processor)
    timed = result.timing.decides
    if not timed:
        print_instructions(result)
    elif result.lengths:
        print_lengths(result, list(result.contenders))
    for name, one in result.contenders.items():
        if timed and not result.lengths:
            print_line(f"{name:<12} {contender_text(one)}")
        if one.measurement is not None:
            print_line(f"{'':<12} energy {energy_text(one.measurement.energy)}")
    if result.tasks:
        print_line(f"kernels      {kernels_text(result)}")


def print_loadgen(results: Sequence[LoadgenResult]) -> None:
    """A line for each scenario of LoadGen."""
    for one in results:
        verdict = "valid" if one.valid else "not valid by LoadGen's rules"
        rate = "" if one.samples_per_s is None else f", {one.samples_per_s:.1f} samples/s"
        print_line(
            f"{one.scenario:<12} 90% {one.latency_ms['90']:.3f} ms, 99% {one.latency_ms['99']:.3f} ms{rate} "
            f"({one.queries} queries from this host, {verdict})"
        )


def print_bundles(installed: Sequence[Mapping[str, Any]]) -> None:
    """The table of `sdk bundles`."""
    if not installed:
        print_line("no model is installed")
    for one in installed:
        state = "active" if one["active"] else ""
        served = length_text(one)
        line = f"{one['name']:<24} {str(one['version'])[:12]:<13} {one['backend']:<12} {state:<8}{served}"
        print_line(line.rstrip())


def length_text(installed: Mapping[str, Any]) -> str:
    """The range of lengths that an installed model serves; "" for one length."""
    length = installed["manifest"].get("signature", {}).get("length")
    return f"{length['name']}={length['low']}..{length['high']}" if length else ""


def print_devices(devices: Sequence[tuple[str, str]]) -> None:
    """The table of `sdk devices list`."""
    for name, text in devices:
        print_line(f"{name:<12} {text}")


def print_calibration(calibration: Calibration, declared: HardwareModel, path: Path) -> None:
    """Print the end of `sdk devices calibrate`: each figure as measured and as declared."""
    measured = calibration.applied(declared)
    rows = [
        ("clock", f"{measured.frequency_hz / 1e9:.2f} GHz", f"{declared.frequency_hz / 1e9:.2f}"),
        ("peak, one core", f"{measured.peak_flops / 1e9:.1f} GFLOP/s", f"{declared.peak_flops / 1e9:.1f}"),
        ("multiply-add", f"{measured.fma_latency_cycles:g} cycles", f"{declared.fma_latency_cycles:g}"),
    ]
    for new, old in zip(measured.levels, declared.levels, strict=True):
        rates = new.bandwidth_bytes_per_s / 1e9, old.bandwidth_bytes_per_s / 1e9
        rows.append((new.name, f"{rates[0]:.1f} GB/s", f"{rates[1]:.1f}"))
        rows.append((f"{new.name} latency", f"{new.latency_s * 1e9:.1f} ns", f"{old.latency_s * 1e9:.1f}"))
    if calibration.parallel_launch_s is not None:
        launches = measured.parallel_launch_s * 1e6, declared.parallel_launch_s * 1e6
        rows.append(("parallel loop", f"{launches[0]:.1f} us", f"{launches[1]:.1f}"))
    for name, new_text, old_text in rows:
        print_line(f"{name:<16} {new_text:>16}   declared {old_text}")
    if calibration.load > 0.5:
        print_line(f"note: other work (load {calibration.load:.1f}) may have lowered the figures")
    print_line(f"{calibration.device} calibrated in {calibration.seconds:.0f} s, kept in {path}")


def _print_layers(layers: Sequence[LayerPart]) -> None:
    """The first layers that a kernel computes, one a line."""
    for number, layer in enumerate(layers[:_SHOWN_LAYERS]):
        print_line(f"{'' if number else 'computes':<10}{layer.text}")
    if len(layers) > _SHOWN_LAYERS:
        print_line(f"{'':<10}and {len(layers) - _SHOWN_LAYERS} more: --format json names all")


def print_explanation(found: Explanation, path: Path) -> None:
    """Print the end of `sdk explain`."""
    kernel, roofline = found.kernel, found.roofline
    print_line(f"{kernel.name}: {kernel.source}{f', rule {kernel.rule}' if kernel.rule else ''}")
    if found.timing.banner:
        print_line(f"note: {found.timing.banner}")
    _print_layers(kernel.layers)
    if kernel.decisions:
        print_line("decided   " + ", ".join(f"{name} {value}" for name, value in kernel.decisions.items()))
    for name, seconds in (("estimate", roofline.estimate_s), ("measured", roofline.measured_s)):
        if seconds:
            rate = f", {roofline.flops / seconds / 1e9:.1f} GFLOP/s" if roofline.flops else ""
            print_line(f"{name}  {seconds * 1e6:.1f} us a call{rate}")
    if found.steps:
        states = len({step.state.key() for step in found.steps})
        walks = len({step.walk for step in found.steps if step.walk >= 0})
        print_line(f"walks     {walks} over {states} programs, {len(found.path)} steps to this one")
    if found.remark:
        print_line(f"note: {found.remark}")
    if found.plan:
        print_line(f"plan      {found.plan}")
    if found.taught is not None:
        print_taught(found.taught, kernel.name)
    print_line(f"picture   {path}")


def print_targets(targets: Mapping[str, Sequence[str]]) -> None:
    """The table of `sdk targets`."""
    for name, lines in targets.items():
        for number, text in enumerate(lines):
            print_line(f"{name if not number else '':<20} {text}")


def print_env(sections: Mapping[str, Mapping[str, str]]) -> None:
    """Print the output of `sdk env`: one block per section."""
    for section, entries in sections.items():
        print_line(section)
        for name, text in entries.items():
            print_line(f"  {name:<16} {text}")
