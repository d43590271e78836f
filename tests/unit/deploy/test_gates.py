"""Gates: what meets a limit, what does not, and that what cannot be known meets none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from host.deploy import fleet
from host.deploy.gates import judged
from host.deploy.result import DeployResult
from host.errors import UserError
from host.model import EMULATOR, Energy
from host.model.text_comparison import EngineTexts, TextComparison
from host.options import DeployOptions
from host.progress import Silence, StageClock
from host.statistics import Estimate
from host.tuning.runners.reach import Reach
from sdk.cli import printing
from sdk.report.figures import deploy_json
from sdk.report.html import render
from tests.unit.compare.samples import result


def _with_energy(one: DeployResult, energy: Energy) -> DeployResult:
    ours = one.contenders["tvm"]
    assert ours.measurement is not None
    return replace(
        one,
        contenders={
            **one.contenders,
            "tvm": replace(ours, measurement=replace(ours.measurement, energy=energy)),
        },
    )


def _verdict(one: DeployResult, **limits: float) -> tuple[bool, float | None, str]:
    [gate] = judged(DeployOptions(**limits), one)  # type: ignore[arg-type]
    assert f"{gate.limit:g}" == f"{next(iter(limits.values())):g}"
    return gate.passed, gate.value, gate.text


def test_no_limit_is_no_gate() -> None:
    assert judged(DeployOptions(), result()) == ()


def test_a_figure_at_its_limit_meets_it_and_one_beyond_does_not() -> None:
    one = result()
    median_ms = one.measurement.median_s * 1e3
    assert _verdict(one, max_latency_ms=median_ms)[0]
    assert not _verdict(one, max_latency_ms=median_ms * 0.99)[0]
    error = one.verification.max_rel_err
    assert _verdict(one, max_error=error)[0]
    assert not _verdict(one, max_error=error / 2)[0]
    sized = replace(one, bundle_bytes=1000)
    assert _verdict(sized, max_bundle_bytes=1000)[0]
    assert not _verdict(sized, max_bundle_bytes=999)[0]
    measured = _with_energy(one, Energy("measured", 0.012, None, "ina3221"))
    assert _verdict(measured, max_energy_mj=12.5)[0]
    assert not _verdict(measured, max_energy_mj=11.9)[0]


def test_a_speedup_counts_as_far_as_it_is_certain_and_beside_the_fastest_peer() -> None:
    one = replace(result(), ratios={"onnxruntime": (1.30, 1.20, 1.40), "openvino": (1.15, 1.05, 1.25)})
    passed, value, text = _verdict(one, min_speedup=1.05)
    assert (passed, value) == (True, 1.05)
    assert "openvino takes 1.15 (1.05 to 1.25) times as long" in text
    assert not _verdict(one, min_speedup=1.10)[0]


def test_the_speedup_of_a_language_model_is_that_of_decoding() -> None:
    rates = {"decode": 90.0, "prefill": 900.0}
    ours = EngineTexts("edgetlm", "1", {"decode": 100.0, "prefill": 800.0}, {}, 1, 0.5)
    speed = {"decode": Estimate(1.11, 1.05, 1.2, 7), "prefill": Estimate(0.9, 0.8, 0.95, 7)}
    best = EngineTexts("llama.cpp", "1", rates, speed, 1, 0.5)
    slow = replace(best, engine="openvino-genai", tokens_s={"decode": 50.0, "prefill": 999.0})
    beside = TextComparison(ours, (slow, best), {"decode": 32}, {"decode": 128}, 7)
    one = replace(result(), ratios={}, beside=beside)
    said = "llama.cpp takes 1.11 (1.05 to 1.20) times as long in decoding"
    assert _verdict(one, min_speedup=1.05) == (True, 1.05, said)
    assert not _verdict(one, min_speedup=1.10)[0]
    few = replace(beside, peers=(replace(best, speedup={"decode": Estimate(1.11)}),))
    assert _verdict(replace(one, beside=few), min_speedup=0.1)[:2] == (False, None)


def test_what_cannot_be_known_meets_no_limit() -> None:
    one = result()
    unavailable = _with_energy(one, Energy("unavailable", None, None, "no sensor"))
    assert _verdict(unavailable, max_energy_mj=1e9) == (False, None, "energy is unavailable (no sensor)")
    assert _verdict(replace(one, ratios={}), min_speedup=0.1)[:2] == (False, None)
    emulated = replace(one, timing=EMULATOR)
    assert _verdict(emulated, max_latency_ms=1e9)[:2] == (False, None)
    assert _verdict(emulated, min_speedup=0.1)[:2] == (False, None)
    library = replace(one, choice=replace(one.choice, backend="onnxruntime", why="it is faster"))
    passed, value, text = _verdict(library, min_speedup=0.1)
    assert (passed, value) == (False, None) and "it is faster" in text


@pytest.mark.parametrize("name", ["min_speedup", "max_latency_ms", "max_energy_mj", "max_error"])
@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_nothing_or_everything_meets_is_refused(name: str, limit: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} .*: give a number above 0"):
        DeployOptions(**{name: limit}).check()  # type: ignore[arg-type]


def test_verdicts_are_in_the_figures_the_page_and_an_error_each(capsys: pytest.CaptureFixture[str]) -> None:
    one = replace(result(), bundle_bytes=1000)
    gates = judged(DeployOptions(max_latency_ms=1e-6, max_error=1.0, max_bundle_bytes=1), one)
    failed = replace(one, gates=gates, installed=False)
    assert [gate["passed"] for gate in deploy_json(failed)["gates"]] == [False, True, False]
    page = render(failed)
    assert "2 of 3 not met: nothing was installed" in page and "max-latency-ms" in page
    assert "Gates" not in render(one)
    assert printing.print_failed_gates([failed, one])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("error: ") and "the gate max-" in line for line in lines)
    assert not printing.print_failed_gates([one])


def test_a_gate_keeps_a_model_from_every_device_of_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    one = result()
    failed = replace(one, gates=judged(DeployOptions(max_latency_ms=1e-6), one), installed=False)
    monkeypatch.setattr(fleet, "deploy", lambda *arguments, **named: failed)
    monkeypatch.setattr(fleet, "_installed", lambda *arguments, **named: pytest.fail("installed"))
    names = ["left", "right"]
    machines = dict.fromkeys(names, one.machine)
    options = DeployOptions(Path("net.onnx"))
    made, outcomes = fleet._one_kind(options, names, machines, None, None, StageClock(Silence()), Reach())
    assert made is failed
    assert {name: outcome.version for name, outcome in outcomes.items()} == {"left": "", "right": ""}
    assert all("a gate is not met: max-latency-ms" in outcome.reason for outcome in outcomes.values())
