from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sdk
from host.deploy import DeployResult
from host.model import EMULATOR, SIMULATION
from sdk.cli.main import main
from sdk.cli.management.report import print_comparison
from sdk.report.compare import BETTER, SAME, UNJUDGED, WORSE, Change, Comparison, compare
from sdk.report.figures import deploy_json
from sdk.report.html import render
from sdk.report.sides import EnergySide, EngineSide, Side, read_side
from tests.unit.compare.power_samples import window
from tests.unit.compare.samples import result


def engine(
    milliseconds: float, noise: float = 0.0, seed: int = 0, millijoules: float | None = None, **more: Any
) -> EngineSide:
    """Twelve rounds and six windows, spread by noise."""
    draw = np.random.default_rng(seed)
    rounds = milliseconds * draw.lognormal(0.0, noise, 12)
    windows = () if millijoules is None else tuple(millijoules * draw.lognormal(0.0, noise, 6))
    energy = EnergySide(
        "unavailable" if millijoules is None else "measured",
        more.pop("boundary", "board"),
        ("total",),
        millijoules,
        None,
        1,
        windows,
        "no sensor",
    )
    return EngineSide(tuple(rounds), energy, **more)


def side(own: EngineSide, **more: Any) -> Side:
    given: dict[str, Any] = {"name": "net", "device": "desk", "backend": "tvm", "threads": 1, "cpu": "chip"}
    return Side("file", own=own, **given | {"versions": {"onnxruntime": "1"}} | more)


def change(comparison: Comparison, metric: str) -> Change:
    return next(one for one in comparison.changes if one.metric == metric)


def verdict(before: EngineSide, after: EngineSide, metric: str = "latency", tolerance: float = 0.0) -> str:
    return change(compare(side(before), side(after), tolerance), metric).verdict


@pytest.mark.parametrize(
    ("factor", "tolerance", "expected"),
    [
        (1.10, 0.0, WORSE),
        (1.10, 0.05, WORSE),
        (1.10, 0.2, SAME),
        (0.90, 0.0, BETTER),
        (1.0, 0.0, SAME),
        (0.90, 0.2, BETTER),
    ],
)
def test_a_change_beyond_noise_is_found(factor: float, tolerance: float, expected: str) -> None:
    before, after = engine(2.0, 0.02, 1, 5.0), engine(2.0 * factor, 0.02, 2, 5.0 * factor)
    assert verdict(before, after, tolerance=tolerance) == expected
    assert verdict(before, after, "energy", tolerance) == expected


def test_noise_alone_is_seldom_a_regression() -> None:
    wrong = sum(
        verdict(engine(2.0, 0.05, 2 * seed), engine(2.0, 0.05, 2 * seed + 1)) == WORSE for seed in range(400)
    )
    # One bound of a 95% interval: 2.5%, and chance about it.
    assert wrong <= 20


@given(st.floats(1.06, 3.0), st.integers(0, 1000), st.floats(0.001, 0.02))
@settings(max_examples=60, deadline=None)
def test_what_is_worse_one_way_is_better_the_other(factor: float, seed: int, noise: float) -> None:
    slow, fast = engine(2.0 * factor, noise, seed), engine(2.0, noise, seed + 1)
    assert verdict(fast, slow) == WORSE
    assert verdict(slow, fast) == BETTER
    assert verdict(fast, slow, tolerance=factor) == SAME
    assert verdict(fast, fast) == SAME


def test_a_slower_machine_is_no_slower_model() -> None:
    drift = 1.0 + 0.3 * np.random.default_rng(5).random(12)
    calm = engine(2.0, 0.01, 1)
    slow = replace(calm, rounds_ms=tuple(np.asarray(calm.rounds_ms) * drift))
    peer = engine(3.0, 0.01, 2)
    slow_peer = replace(peer, rounds_ms=tuple(np.asarray(peer.rounds_ms) * drift))
    assert verdict(calm, slow) == WORSE
    before, after = side(calm, peers={"onnxruntime": peer}), side(slow, peers={"onnxruntime": slow_peer})
    found = change(compare(before, after), "latency")
    assert found.verdict == SAME
    assert found.remark.startswith("relative to onnxruntime, which itself took 1.1")
    assert found.before is not None and found.after is not None and found.ratio is not None
    assert found.ratio.value == pytest.approx(found.after / found.before), "of the times that are shown"
    assert found.judged is not None and found.judged.value == pytest.approx(1.0)
    # Another version of the peer, or another machine, is no control.
    for other in (replace(after, versions={"onnxruntime": "2"}), replace(after, cpu="other chip")):
        assert change(compare(before, other), "latency").verdict == WORSE


def test_energies_that_are_different_things_are_not_compared() -> None:
    one, other = engine(2.0, 0.01, 1, 5.0), engine(2.0, 0.01, 2, 9.0, boundary="package")
    found = change(compare(side(one), side(other)), "energy")
    assert (found.verdict, found.ratio) == (UNJUDGED, None)
    assert found.remark == "of different boundaries: board and package"
    estimated = replace(one, energy=replace(one.energy, kind="estimated"))
    assert (
        change(compare(side(one), side(estimated)), "energy").remark == "one is measured, the other estimated"
    )
    rails = replace(one, energy=replace(one.energy, rails=("cpu",)))
    assert "different rails: total and cpu" in change(compare(side(one), side(rails)), "energy").remark
    none = change(compare(side(one), side(engine(2.0))), "energy")
    assert (none.verdict, none.remark) == (UNJUDGED, "unavailable: no sensor")


def test_one_window_has_no_bound_but_the_agents_own_trials_have() -> None:
    one = replace(
        engine(2.0, millijoules=5.0), energy=replace(engine(2.0, millijoules=5.0).energy, windows_mj=(5.0,))
    )
    assert "too few windows" in change(compare(side(one), side(one)), "energy").remark
    known = replace(one, energy=replace(one.energy, std_mj=0.05, trials=5))
    worse = replace(known, energy=replace(known.energy, value_mj=6.0))
    assert verdict(known, worse, "energy") == WORSE
    assert verdict(known, known, "energy") == SAME


def test_throttled_figures_are_not_judged() -> None:
    before, after = engine(2.0, 0.01, 1, 5.0), engine(4.0, 0.01, 2, 9.0, throttled=True)
    for metric in ("latency", "energy"):
        found = change(compare(side(before), side(after)), metric)
        assert (found.verdict, found.remark) == (UNJUDGED, "the board throttled in file")


def test_memory_error_and_fallback_share() -> None:
    before = side(engine(2.0, error=1e-6, tolerance=1e-3), bundle_bytes=1000_000, default_share=0.0)
    cases: list[tuple[dict[str, Any], str, float, str]] = [
        ({"bundle_bytes": 1100_000}, "memory", 0.0, WORSE),
        ({"bundle_bytes": 1001_000}, "memory", 0.0, SAME),
        ({"bundle_bytes": 1100_000}, "memory", 0.2, SAME),
        ({"bundle_bytes": 900_000}, "memory", 0.0, BETTER),
        ({"bundle_bytes": None}, "memory", 0.0, UNJUDGED),
        ({"own": engine(2.0, error=3e-6, tolerance=1e-3)}, "accuracy error", 0.0, SAME),
        ({"own": engine(2.0, error=5e-4, tolerance=1e-3)}, "accuracy error", 0.0, WORSE),
        ({"default_share": 0.2}, "fallback share", 0.0, WORSE),
        ({"default_share": 0.005}, "fallback share", 0.0, SAME),
        ({"default_share": 0.2}, "fallback share", 0.25, SAME),
        ({"backend": "onnxruntime"}, "fallback share", 0.0, WORSE),
    ]
    for differs, metric, tolerance, expected in cases:
        assert change(compare(before, replace(before, **differs), tolerance), metric).verdict == expected, (
            differs
        )


def test_what_else_differs_is_said() -> None:
    before = side(engine(2.0, 0.01))
    after = replace(before, name="other", device="orin", threads=4, cpu="another")
    assert compare(before, after).remarks == (
        "different models: net and other",
        "different devices: desk and orin",
        "different processors: chip and another",
        "different numbers of threads: 1 and 4",
    )
    assert compare(before, before).remarks == ()


def test_a_simulated_board_is_the_same_wherever_its_file_is_named(tmp_path: Path) -> None:
    """A result names it without the folders of the host, and a bundle as it was given."""
    board = tmp_path / "board.toml"
    simulated = replace(measured(2.0, 1), device=f"replay:{board}")
    written = tmp_path / "result.json"
    written.write_text(json.dumps(deploy_json(simulated)))
    found = read_side(written)
    assert found.device == "replay:.../board.toml"
    # It was written before results said that a board was simulated; the name says it.
    old = {key: value for key, value in deploy_json(simulated).items() if key != "simulated"}
    written.write_text(json.dumps(old))
    assert read_side(written).timing is SIMULATION
    written.write_text(json.dumps({**deploy_json(simulated), "device": simulated.device}))
    assert read_side(written).device == found.device


def test_different_models_are_never_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """A peer that has become slower with the model would call a model 57 times slower the same."""
    before = side(engine(2.0, 0.01, 1), peers={"onnxruntime": engine(3.0, 0.01, 2)})
    slow = side(engine(114.0, 0.01, 3), peers={"onnxruntime": engine(171.0, 0.01, 4)})
    for after in (replace(slow, name="other"), replace(before, name="other")):
        comparison = compare(before, after)
        assert {one.verdict for one in comparison.changes} == {UNJUDGED}
        print_comparison(comparison)
        assert "nothing was judged" in capsys.readouterr().out
    # Under one name too: the peer cannot have become so much slower on the same model.
    found = change(compare(before, slow), "latency")
    assert found.verdict == UNJUDGED
    assert found.remark.startswith("onnxruntime itself took 57")


def test_an_emulators_time_is_not_judged_but_its_instructions_are() -> None:
    before = side(engine(2.0, 0.01, 1), timing=EMULATOR, instructions=1e6)
    comparison = compare(before, side(engine(9.0, 0.01, 2), timing=EMULATOR, instructions=1.1e6))
    assert change(comparison, "latency").verdict == UNJUDGED
    assert change(comparison, "instructions").verdict == WORSE


def test_a_simulations_time_is_judged_beside_its_own_alone() -> None:
    simulated = side(engine(2.0, 0.01, 1), timing=SIMULATION)
    assert change(compare(simulated, simulated), "latency").verdict == SAME
    found = change(compare(simulated, side(engine(9.0, 0.01, 2))), "latency")
    assert (found.verdict, found.remark) == (UNJUDGED, "one is a simulation's time, the other a board's")
    figures = deploy_json(replace(result(), timing=SIMULATION))
    assert figures["simulated"] and not deploy_json(result())["simulated"]


def measured(milliseconds: float, seed: int) -> DeployResult:
    """A deployment whose rounds and windows are known."""
    whole = result()
    draw = np.random.default_rng(seed)
    contenders = dict(whole.contenders)
    for name, ms in (("tvm", milliseconds), ("onnxruntime", 3.0)):
        factors = draw.lognormal(0.0, 0.01, 12)
        windows = tuple(window(ms * factor, 10.0 * ms * factor) for factor in factors[:6])
        contenders[name] = replace(
            contenders[name],
            measurement=windows[0],
            rounds_s=tuple(ms * 1e-3 * factor for factor in factors),
            windows=windows,
        )
    return replace(whole, contenders=contenders, bundle_bytes=1000)


@pytest.mark.parametrize("form", ["json", "html"])
def test_the_command_for_a_pipeline(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    def kept(name: str, milliseconds: float, seed: int) -> str:
        path = tmp_path / f"{name}.{form}"
        whole = measured(milliseconds, seed)
        path.write_text(json.dumps(deploy_json(whole)) if form == "json" else render(whole))
        return str(path)

    base, same, slow = kept("base", 2.0, 1), kept("same", 2.0, 2), kept("slow", 2.4, 3)
    assert main(["report", "compare", base, same]) == 0
    assert "nothing got worse beyond noise" in capsys.readouterr().out
    figures = tmp_path / "out" / "compare.json"
    assert main(["report", "compare", base, slow, "--json", str(figures)]) == 3
    assert "worse beyond noise: latency, energy" in capsys.readouterr().out
    content = json.loads(figures.read_text())
    assert content["schema"] == "edgetlm.compare/1" and content["regression"] is True
    latency = content["changes"][0]
    assert latency["ratio"]["low"] < 1.2 < latency["ratio"]["high"]
    assert main(["report", "compare", base, slow, "--tolerance", "30"]) == 0
    assert "nothing got worse beyond noise and 30%" in capsys.readouterr().out
    assert main(["report", "compare", slow, base]) == 0


def test_what_cannot_be_compared_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = tmp_path / "good.json"
    good.write_text(json.dumps(deploy_json(measured(2.0, 0))))
    files = {
        "absent.json": (None, "no such file"),
        "text.json": ("hello", "is no result"),
        "page.html": ("<html></html>", "is no result"),
        "old.json": ('{"schema": "edgetlm.deploy/1"}', "this program compares 'edgetlm.deploy/2'"),
        "new.json": ('{"schema": "edgetlm.deploy/99"}', "'edgetlm.deploy/99'"),
        "tuned.json": ('{"schema": "edgetlm.tune/2"}', "the result of a tuning"),
        "cut.json": ('{"schema": "edgetlm.deploy/2", "name": "net"}', "is damaged (device: "),
        "bare.json": (json.dumps(deploy_json(result())), "holds no samples"),
    }
    for name, (text, words) in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        assert main(["report", "compare", str(good), str(tmp_path / name)]) == 2, name
        printed = capsys.readouterr().err
        assert words in printed and printed.count("\n") == 1, printed
    assert main(["report", "compare", str(good), str(good), "--tolerance", "-1"]) == 2


def test_a_comparison_is_written_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, milliseconds in (("base", 2.0), ("slow", 2.4)):
        (tmp_path / f"{name}.json").write_text(json.dumps(deploy_json(measured(milliseconds, 1))))
    sides = [str(tmp_path / "base.json"), str(tmp_path / "slow.json")]
    assert main(["report", "compare", *sides, "-o", "json"]) == 3, "the exit code stays"
    rows = {row["figure"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["latency"]["verdict"] == WORSE
    assert rows["latency"]["after"] == pytest.approx(2.4, rel=0.05)
    assert main(["report", "compare", *sides, "-o", "md"]) == 3
    assert capsys.readouterr().out.startswith("| figure | unit | before | after |")


def test_the_figures_of_one_result_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(deploy_json(measured(2.0, 1))))
    assert main(["report", "show", str(path), "-o", "json"]) == 0
    rows = {row["figure"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["latency"]["value"] == pytest.approx(2.0, rel=0.05)
    [peer] = [row for name, row in rows.items() if name.startswith("latency of")]
    assert peer["remark"].endswith("times ours")
    assert rows["bytes that the device runs"]["value"] == 1000
    assert main(["report", "show", str(path)]) == 0
    said = capsys.readouterr().out
    assert "latency" in said and "1000 B" in said and "None" not in said
    path.write_text(json.dumps(deploy_json(replace(measured(2.0, 1), timing=EMULATOR))))
    assert main(["report", "show", str(path), "-o", "json"]) == 0
    [latency, *_] = json.loads(capsys.readouterr().out)
    assert latency["value"] is None and latency["remark"] == "the device is emulated"
    assert main(["report", "show", str(tmp_path / "none.json")]) == 2


def test_deployments_are_compared_by_their_own_figures(tmp_path: Path) -> None:
    """Two of one model have the same report: that of the later one."""
    report = tmp_path / "report.html"
    before, after = (sdk.Deployment(measured(*one), report) for one in ((2.0, 1), (2.4, 3)))
    report.write_text(render(after.result))
    assert change(sdk.compare(before, after), "latency").verdict == WORSE
    assert change(sdk.compare(after, before), "latency").verdict == BETTER
    assert change(sdk.compare(report, after), "latency").verdict == SAME
