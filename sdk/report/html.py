"""The report of a deployment."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from host.compile.memory_cap import described, size_text
from host.errors import UserError
from sdk.report.charts import instructions_chart, kernel_chart, latency_chart, rounds_chart, stage_chart
from sdk.report.compared import headline
from sdk.report.drawing.share import share_picture
from sdk.report.figures import deploy_json
from sdk.report.kernels.graph import graph_of
from sdk.report.kernels.layers import computed, embedded, layer_tree, layers_left_out
from sdk.report.kernels.rooflines import on_roofline, roofline_charts, source_text, walks
from sdk.report.page import StagedPage, load_template, render_page
from sdk.report.power import energy_charts, energy_rows, joules_of, power_context, throttled
from sdk.report.quantisation.charts import quantisation_charts, type_charts
from sdk.report.quantisation.language_model import speed_lines, text_lines
from sdk.report.tuning import STOPPED, tuning_charts

if TYPE_CHECKING:
    from host.deploy import DeployResult
    from host.model import TensorSpec

_TEMPLATE = "report.html.j2"


class StagedReport:
    """The report of a deployment and a picture beside it: both come to their places at the end, or neither.

    The page's templates are compiled here, before a deployment waits for the process that reads its model.

    Args:
        path: of the page; the picture is an SVG file of the same name.

    Raises:
        UserError: the page would have the picture's name, or cannot be written there.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix == ".svg":
            raise UserError(f"{path} is the name of the picture beside the report: give the report .html")
        self.path = path
        self._files = ExitStack()
        self._page, self._picture = StagedPage(path), StagedPage(path.with_suffix(".svg"))
        load_template(_TEMPLATE)

    def __enter__(self) -> StagedReport:
        self._files.enter_context(self._page)
        self._files.enter_context(self._picture)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def write(self, result: DeployResult) -> None:
        """Write both beside their places.

        Raises:
            DeviceFull: no space left.
        """
        self._page.write(render(result, self._picture.path.name))
        self._picture.write(share_picture(result))


def write_report(result: DeployResult, path: Path) -> None:
    """Write the report of a deployment and its picture completely or not at all; see `StagedReport`."""
    with StagedReport(path) as report:
        report.write(result)


def render(result: DeployResult, picture: str = "") -> str:
    """The report as text.

    Args:
        result: of the deployment.
        picture: name of a file beside the page, which sites show with a link to it; "" for none.
    """
    charts = {
        "latency": latency_chart(result),
        "instructions": instructions_chart(result),
        "rounds": rounds_chart(result),
        "kernels": kernel_chart(result),
        "stages": stage_chart(result),
        **energy_charts(result),
        **roofline_charts(result.explained),
    }
    if result.quantisation is not None:
        charts |= quantisation_charts(result.quantisation)
    if result.types is not None:
        charts |= type_charts(result.types)
    if result.tuning is not None:
        charts |= tuning_charts(result.tuning)
    figures = deploy_json(result)
    return render_page(
        _TEMPLATE,
        charts,
        result=result,
        simulation=result.timing.banner,
        titled=result.timing.titled,
        headline=headline(result),
        facts=_facts(result),
        picture=picture,
        memory="" if result.memory is None else described(result.memory),
        rows=[_row(result, name) for name in [result.choice.backend, *result.peers]],
        energies=energy_rows(result),
        any_throttled=bool(throttled(result)),
        throttle_reasons=", ".join(throttled(result)),
        uncounted=", ".join(_uncounted(result)),
        figures=embedded(figures),
        graph=graph_of(result),
        layer_tree=layer_tree(result.tasks),
        layers_left_out=layers_left_out(result.tasks),
        sources=any(layer.source for task in result.tasks for layer in task.layers),
        computed=computed,
        **_explained(result),
        since_last=figures["since_last"],
        speed_lines=[] if result.speed is None else speed_lines(result.speed),
        text_lines=[] if result.text is None else text_lines(result.text),
        stopped=STOPPED,
        **(power_context(result.power) if result.power is not None else {"power": None}),
        shape_text=lambda spec: _shape_text(result, spec),
    )


def _explained(result: DeployResult) -> dict[str, Any]:
    """What the page says of the roofline and of the walks."""
    explained = result.explained
    shown = on_roofline(explained)
    return {
        "explained": explained,
        "measured_kernels": any(one.roofline.measured_s is not None for one in shown),
        "without_arithmetic": sum(not one.roofline.intensity for one in explained),
        "roofline_source": source_text(explained[0].roofline) if explained else "",
        "walked": walks(explained),
    }


def _facts(result: DeployResult) -> list[tuple[str, str]]:
    """The card of model and device: what is known of them, by name."""
    machine, memory = result.machine, result.memory
    energy = joules_of(result.contenders[result.choice.backend])
    board = [result.processor.partition(" beside ")[0]] if result.processor != machine.cpu_name else []
    board.append(f"{machine.cores} cores")
    if machine.memory_bytes:
        board.append(f"{machine.memory_bytes / 2**30:.3g} GiB of memory")
    whose = f" ({result.timing.machine})" if result.timing.machine else ""
    found = [("device", ", ".join(board) + whose)]
    if result.parameters is not None:
        found.append(("parameters", f"{result.parameters:,}"))
    if result.flops is not None:
        found.append(("arithmetic of a run", f"{result.flops / 1e6:,.4g} MFLOP"))
        if result.timing.decides:
            rate = result.flops / result.measurement.median_s / 1e9
            found.append((result.timing.titled("rate"), f"{_digits(rate)} GFLOP/s"))
    if memory is not None:
        found += [("weights", size_text(memory.weights_bytes)), ("peak memory", size_text(memory.peak_bytes))]
    if result.bundle_bytes:
        found.append(("size on the device", size_text(result.bundle_bytes)))
    if result.start is not None:
        load, run = (
            f"{seconds * 1e3:,.4g} ms" for seconds in (result.start.load_s, result.start.first_run_s)
        )
        total = f"{result.start.first_output_s * 1e3:,.4g} ms"
        found.append(("from the files to the first output", f"{total}: {load} to load, {run} the first run"))
    launch = result.measurement.conditions.get("launch")
    if launch:
        found.append(("launch of a run", str(launch)))
    joules = "unavailable" if energy is None else f"{energy.value * 1e3:.4g} mJ"
    found.append((result.timing.titled("energy of a run"), joules))
    return found + ([("made on", result.date)] if result.date else [])


def _digits(value: float) -> str:
    """Three digits, and no exponent where the number is large."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _uncounted(result: DeployResult) -> list[str]:
    """Engines whose instructions were not counted."""
    return [
        name
        for name, one in result.contenders.items()
        if one.measurement is not None and one.measurement.instructions is None
    ]


def _shape_text(result: DeployResult, spec: TensorSpec) -> str:
    """The shape of an input or output, with the range where it is open."""
    length = result.signature.length
    span = f"{length.low}..{length.high}" if length is not None else ""
    inputs = spec in result.signature.inputs
    return " x ".join(
        (span if inputs else f"up to {size}") if axis in spec.open else str(size)
        for axis, size in enumerate(spec.shape)
    )


def _row(result: DeployResult, name: str) -> dict[str, Any]:
    """One line of the table of engines."""
    one = result.contenders[name]
    row: dict[str, Any] = {
        "engine": name,
        "reason": one.reason,
        "verify": one.verification,
        "measured": False,
    }
    if one.verification is not None and not one.verification.passed:
        row["reason"] = one.verification.message
    if one.measurement is None:
        return row
    measurement = one.measurement
    return row | {
        "measured": True,
        "median": measurement.median_s * 1e3,
        "p10": measurement.p10_s * 1e3,
        "p90": measurement.p90_s * 1e3,
        "n": measurement.n,
        "ratio": _against_installed(result, name),
        "energy": measurement.energy,
    }


def _against_installed(result: DeployResult, name: str) -> float:
    """Time of a measured engine over that of the installed one: of rounds in pairs, as in the headline.

    The quotient of the medians is another number where the machine did other work, and takes its place only
    where the engines were not compared in pairs.
    """
    ratios = result.lengths[-1].ratios if result.lengths else result.ratios
    over_tvm = {one: value for one, (value, _, _) in ratios.items()} | {"tvm": 1.0}
    installed = result.choice.backend
    if name in over_tvm and installed in over_tvm:
        return over_tvm[name] / over_tvm[installed]
    measured = result.contenders[name].measurement
    assert measured is not None
    return measured.median_s / result.measurement.median_s
