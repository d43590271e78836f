from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from host.errors import UserError
from host.manifest import MemoryPart
from host.model import EMULATOR, SIMULATION, Energy, Start
from host.model.quantisation import FrontPoint, OutputError, Quantisation, QuantisedLayer
from host.model.text_quality import TextQuality
from sdk.cli.printing import print_deployment
from sdk.model import Deployment
from sdk.report.charts import kernel_chart
from sdk.report.figures import deploy_json
from sdk.report.html import render, write_report
from sdk.text import without_host_paths
from tests.browser import LARGEST_PAGE_BYTES, drawn, layout_in_browser, page_in_browser
from tests.unit.compare.samples import result, task
from tests.unit.sdk.report.power_result import deployment, sweep
from tests.unit.sdk.report.test_kernels import LAYERS, explanation

RAPL = Energy("measured", 0.25, 0.125, "rapl package-0", "package")


def test_charts_are_drawn_in_a_browser(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    write_report(result(RAPL), report)
    page = page_in_browser(report, tmp_path / "profile")
    assert drawn(page, "latency", "box") == 2
    assert drawn(page, "latency", "samples") == 2
    assert drawn(page, "rounds", "line") == 2
    assert drawn(page, "kernels", "bar") == 2
    assert drawn(page, "energy", "bar") == 1
    assert drawn(page, "stages", "bar") == 2


def test_the_file_refers_to_nothing_outside_and_runs_nothing() -> None:
    html = render(result())
    assert not re.search(r"""(src|href)\s*=\s*["']""", html)
    assert re.findall(r"<script[^>]*>", html) == ['<script type="application/json" id="figures">']


def test_a_page_with_every_part_stays_small() -> None:
    tasks = tuple(
        replace(task(f"fused_conv2d_add_clip_{i}", "gensor", 1, float(i + 1)), layers=LAYERS)
        for i in range(120)
    )
    whole = replace(
        deployment(sweep(cap_w=7.0)),
        quantisation=quantisation(),
        tasks=tasks,
        explained=(*(explanation(f"dense_{i}", walks=True) for i in range(3)), *[explanation("dense")] * 120),
    )
    page = render(whole)
    assert 'id="chart-walk-3"' in page and len(page.encode()) < LARGEST_PAGE_BYTES


@pytest.mark.parametrize("width", [400, 800, 1280])
def test_a_page_fits_windows_of_three_widths(tmp_path: Path, width: int) -> None:
    report = tmp_path / "report.html"
    one = replace(deployment(sweep(cap_w=7.0)), quantisation=quantisation(), device="a" * 40)
    write_report(one, report)
    found = layout_in_browser(report, tmp_path / "profile", width)
    assert found.scroll_width <= found.width <= width
    assert len(found.charts) == len(set(found.charts)) == report.read_text().count("<figure")
    assert found.smallest_px >= 8.5
    assert found.outside == ()


def test_the_card_has_parameters_and_the_time_to_the_first_output() -> None:
    ours = result().contenders
    started = {**ours, "tvm": replace(ours["tvm"], start=Start(0.25, 0.03125))}
    one = replace(result(), contenders=started, parameters=3_504_872)
    card = render(one).split("</dl>")[0]
    assert "<dt>parameters</dt><dd>3,504,872</dd>" in card
    assert "<dd>281.2 ms: 250 ms to load, 31.25 ms the first run</dd>" in card
    data = deploy_json(one)
    assert data["parameters"] == 3_504_872
    assert data["start"] == {"load_s": 0.25, "first_run_s": 0.03125, "first_output_s": 0.28125}
    assert data["peers"]["litert"].get("start") is None
    unknown = render(result()).split("</dl>")[0]
    assert "first output" not in unknown and "parameters" not in unknown
    assert deploy_json(result())["start"] is None and deploy_json(result())["parameters"] is None


def test_what_a_model_names_cannot_break_the_page() -> None:
    html = render(result())
    assert "out <code>&lt;/script&gt;&lt;b&gt;</code>" in html
    assert ">sort &lt;/script&gt;<title>sort &lt;/script&gt;</title>" in html


def test_a_page_shows_what_quantising_loses_by_layer_and_the_front(tmp_path: Path) -> None:
    one = replace(result(), quantisation=quantisation())
    page = render(one)
    assert "2 of 3 layers compute in int8, with activations in uint8" in page
    assert "<td><code>&lt;img&gt;</code></td><td>Conv</td>" in page and "<img>" not in page
    assert "quantisation" not in render(result()).split("<script")[0]
    data = deploy_json(one)["quantisation"]
    assert [layer["name"] for layer in data["layers"] if not layer["quantised"]] == ["head"]
    assert data["errors"][0]["snr_db"] == pytest.approx(26.0, abs=0.1)
    assert data["fully_quantised"][0]["rms"] is None, "JSON has no infinity"
    assert [(point["kept"], point["taken"]) for point in data["front"]] == [(0, False), (1, True)]
    json.dumps(data, allow_nan=False)
    assert deploy_json(result())["quantisation"] is None
    report = tmp_path / "report.html"
    write_report(one, report)
    shown = page_in_browser(report, tmp_path / "profile")
    assert drawn(shown, "quantisation-layers", "bar") == 3


def test_a_terminal_says_what_quantising_loses(capsys: pytest.CaptureFixture[str]) -> None:
    print_deployment(Deployment(replace(result(), quantisation=quantisation()), Path("report.html")))
    said = capsys.readouterr().out
    assert "quantised 2 of 3 layers to int8, calibrated with 100 samples; allowed error 0.1" in said
    assert (
        "error     scores off by 5.00% of its size (rms, SNR 26.0 dB), at most 8.00% of its largest" in said
    )
    assert "loses     30.00% alone: head (Gemm), stays in floats" in said


def test_perplexity_and_divergence_are_in_page_terminal_and_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = TextQuality(40, "float32", 12.5, 12.25, 0.03125, 0.03, 0.975, 64, 63)
    one = replace(result(), text=text)
    said = (
        "perplexity 12.5 over 40 tokens, float32 has 12.25",
        "KL divergence from float32 0.031 nats a token, of which the weights make 0.03; the same likeliest "
        "token in 97.5%",
        "greedy continuation equal to the reference's for 63 of 64 tokens",
    )
    assert ". ".join(said).replace("'", "&#39;") in render(one)
    assert "perplexity" not in render(result()).split("<script")[0]
    print_deployment(Deployment(one, Path("report.html")))
    assert "text      " + "\n          ".join(said) in capsys.readouterr().out
    assert deploy_json(one)["text"] == {
        "tokens": 40,
        "baseline": "float32",
        "perplexity": 12.5,
        "baseline_perplexity": 12.25,
        "kl_divergence": 0.03125,
        "weights_kl_divergence": 0.03,
        "same_likeliest": 0.975,
        "greedy": {"tokens": 64, "equal": 63},
    }
    endless = replace(one, text=replace(text, perplexity=math.inf, baseline="file", weights_divergence=0.0))
    assert deploy_json(endless)["text"]["perplexity"] is None, "JSON has no infinity"
    assert "KL divergence from the file&#39;s values in float32 0.031 nats a token; the" in render(endless)
    assert deploy_json(result())["text"] is None


def quantisation() -> Quantisation:
    """A made-up one, of three layers."""
    return Quantisation(
        original=Path("net.onnx"),
        dtype="uint8",
        samples=100,
        compared=32,
        bound=0.1,
        errors=(OutputError("scores", 0.05, 0.08, 0.999, 0.97),),
        fully=(OutputError("scores", math.inf, math.inf, None, 0.5),),
        layers=(
            QuantisedLayer("<img>", "Conv", 1000, 100, 0.01),
            QuantisedLayer("b", "Conv", 1000, 100, 0.02),
            QuantisedLayer("head", "Gemm", 100, 100, 0.3, quantised=False),
        ),
        front=(FrontPoint(0, 0.0, math.inf), FrontPoint(1, 0.05, 0.05, taken=True)),
    )


def test_a_simulated_board_has_a_banner_and_a_real_one_has_none() -> None:
    assert 'class="banner"' not in render(result())
    simulated = render(replace(result(), timing=SIMULATION))
    assert 'role="note">Simulated board: all times, power and temperatures are those of a model' in simulated


def test_a_page_has_no_path_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    page = render(
        replace(
            result(),
            bundle=work / "out" / "net" / "bundle",
            command=f"sdk deploy {home}/models/net.onnx --report {tmp_path}/page.html",
            fallback="operator /features/conv/Conv of the model",
        )
    )
    assert str(tmp_path) not in page
    assert "<code>out/net/bundle</code>" in page
    assert "sdk deploy ~/models/net.onnx --report .../page.html" in page
    # What belongs to every machine, and names of a model that look like paths, stay.
    assert "no RAPL in /sys/class/powercap" in page
    assert "operator /features/conv/Conv of the model" in page


@pytest.mark.parametrize(
    ("text", "passed_on"),
    [
        ("sqlite:////{home}/records.db", "sqlite:///~/records.db"),
        ("sqlite:////{other}/records.db", "sqlite:///.../records.db"),
        ("see file:///{work}/net.onnx", "see file://net.onnx"),
        ("--out=/{other}/include", "--out=.../include"),
        ("https://example.org/{home}/page", "https://example.org/{home}/page"),
        ("https://example.org/{other}/page", "https://example.org/{other}/page"),
        ("model/{work}/conv", "model/{work}/conv"),
    ],
)
def test_paths_are_found_in_urls_of_files_and_not_in_others(
    text: str, passed_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: str(tmp_path / name)[1:] for name in ("work", "home", "other")}
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert without_host_paths(text.format(**folders)) == passed_on.format(**folders)


def test_figures_have_no_path_of_this_machine_but_the_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = replace(
        result(),
        bundle=tmp_path / "out" / "bundle",
        command=f"sdk deploy {tmp_path}/net.onnx",
        fallback=f"cannot read {tmp_path.parent}/weights.bin",
    )
    found = deploy_json(whole)
    assert found["bundle"] == str(tmp_path / "out" / "bundle"), "programs open it"
    assert found["command"] == "sdk deploy net.onnx"
    assert found["fallback"] == "cannot read .../weights.bin"
    assert str(tmp_path.parent) not in json.dumps({**found, "bundle": ""})


def test_a_deployment_ends_with_four_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_deployment(Deployment(replace(result(RAPL), installed=True), Path("report.html")))
    lines = capsys.readouterr().out.splitlines()[-4:]
    value, low, high = result().ratios["onnxruntime"]
    figures = f"{value:.2f} ({low:.2f} to {high:.2f})"
    assert lines[0] == f"Compared  {figures} times as fast as onnxruntime, the best of the peers"
    assert lines[1].startswith("Power     250 mJ a run")
    print_deployment(Deployment(result(), Path("report.html")))
    assert capsys.readouterr().out.count(result().measurement.energy.source) == 1, "the reason is said once"
    assert lines[2:] == [
        "State     tvm, verified, installed and active on local",
        "Next      sdk run net --input INPUTS.npz --device local",
    ]
    print_deployment(Deployment(replace(result(RAPL), installed=False), Path("report.html")))
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert lines == [
        "State     tvm, verified, not installed on local",
        f"Next      sdk run {result().bundle} --input INPUTS.npz --device local",
    ]


def test_every_figure_is_there_or_the_reason_why_not() -> None:
    html = render(result())
    for text in (
        "2.000 ms",
        "3.000 ms",
        "1.50",
        "not measured: does not read onnx files",
        "Unavailable: no RAPL in /sys/class/powercap",
        "sdk deploy net.onnx",
        "0.1.0",
        "25.0% of the time",
    ):
        assert text in html
    assert "chart-energy" not in html


def test_long_models_show_the_longest_kernels_and_the_rest_as_one() -> None:
    many = tuple(task(f"kernel{i}", "gensor", 1, float(i + 1)) for i in range(60))
    chart = kernel_chart(replace(result(), tasks=many))
    assert chart is not None
    assert chart["data"][-1]["name"] == "20 more"
    assert chart["data"][-1]["x"] == [sum(range(1, 21))]
    assert kernel_chart(replace(result(), tasks=())) is None


def test_a_report_that_does_not_fit_the_disk_leaves_nothing(tmp_path: Path) -> None:
    program = f"""
import resource
from pathlib import Path
from host.errors import DeviceFull
from sdk.report.html import write_report
from tests.unit.compare.samples import result
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
try:
    write_report(result(), Path({str(tmp_path / "report.html")!r}))
except DeviceFull as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "no space left" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("energy", [None, RAPL])
def test_the_json_holds_what_readers_depend_on(energy: Energy | None) -> None:
    figures = json.loads(json.dumps(deploy_json(result(energy) if energy else result())))
    assert figures["bundle"] == "out/net/bundle"
    assert figures["backend"] == "tvm"
    assert figures["latency_ms"] == {
        "median": pytest.approx(2.0),
        "p10": pytest.approx(1.92),
        "p90": pytest.approx(2.08),
        "n": 20,
    }
    expected = (
        (250.0, "measured", "rapl package-0")
        if energy
        else (None, "unavailable", figures["energy_mj"]["source"])
    )
    assert tuple(figures["energy_mj"][key] for key in ("value", "kind", "source")) == expected
    assert figures["verify"]["passed"] is True
    assert figures["peers"]["onnxruntime"]["latency_ms"]["median"] == pytest.approx(3.0)
    assert figures["peers"]["litert"]["reason"] == "does not read onnx files"
    assert [(t["name"], t["weight"], t["source"], t["latency_us"]) for t in figures["tasks"]] == [
        ("conv", 3, "gensor", 500.0),
        ("sort </script>", 1, "default", 500.0),
    ]
    assert figures["seconds"]["total"] == 4.0


def test_a_picture_for_sharing_lies_beside_the_page(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    write_report(replace(result(), name="<net>", date="2026-11-24"), report)
    root = ElementTree.parse(tmp_path / "report.svg").getroot()
    said = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert said[:2] == ["<net>", "local: Test processor"]
    first = "1.50 (1.45 to 1.55) times as fast as onnxruntime, the best of the peers, on local, verified"
    assert " ".join(str(one) for one in said).startswith(f"<net> local: Test processor {first} tvm")
    assert said[-1] == "EdgeTLM 0.1.0   2026-11-24"
    bars = [float(one.get("width", "")) for one in root.iter() if one.get("class") == "bar"]
    assert bars[1] / bars[0] == pytest.approx(1.5, rel=0.01)
    assert {"2 ms", "3 ms"} <= set(said)
    page = report.read_text()
    assert '<meta property="og:image" content="report.svg">' in page
    assert '<meta property="og:title" content="&lt;net&gt; on local">' in page
    assert "og:image" not in render(result())
    # What is no machine's gets no figures.
    write_report(replace(result(), timing=EMULATOR), report)
    picture = (tmp_path / "report.svg").read_text()
    assert "Simulated board" in picture and " ms<" not in picture
    with pytest.raises(UserError, match="name of the picture"):
        write_report(result(), tmp_path / "report.svg")


def test_a_card_has_what_is_known_of_model_and_device() -> None:
    memory = MemoryPart(weights_bytes=3 << 20, activations_bytes=1 << 20, peak_bytes=5 << 20)
    one = replace(result(RAPL), memory=memory, bundle_bytes=2_500_000, date="2026-11-24")
    found = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", render(one)))
    assert found == {
        "device": "2 cores, 1 GiB of memory",
        "arithmetic of a run": "4 MFLOP",
        "rate": "2 GFLOP/s",
        "weights": "3.0 MiB",
        "peak memory": "5.0 MiB",
        "size on the device": "2.4 MiB",
        "energy of a run": "250 mJ",
        "made on": "2026-11-24",
    }
    figures = deploy_json(one)
    assert (figures["flops"], figures["date"]) == (4e6, "2026-11-24")
    # What is not known is not there, and never 0.
    bare = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", render(replace(result(), tasks=()))))
    assert bare == {"device": "2 cores, 1 GiB of memory", "energy of a run": "unavailable"}
    assert deploy_json(replace(result(), tasks=()))["flops"] is None
    assert "<dt>rate</dt>" not in render(replace(one, timing=EMULATOR))


def test_the_page_begins_with_what_was_gained_and_says_how_to_load_it() -> None:
    one = result()
    page = render(one).split("<script")[0]
    name, (value, low, high) = min(one.ratios.items(), key=lambda pair: pair[1][0])
    first = f"{value:.2f} ({low:.2f} to {high:.2f}) times as fast as {name}"
    assert 0 < page.index(first) < page.index('class="lead"')
    assert "from device_agent.runtime import load" in page
    assert (
        f"&#34;{one.signature.inputs[0].name}&#34;: ..." in page
        or f'"{one.signature.inputs[0].name}": ...' in page
    )
    # Nothing is claimed for a simulated board.
    for timing in (SIMULATION, EMULATOR):
        assert 'class="headline"' not in render(replace(one, timing=timing))
