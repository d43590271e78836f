from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from host.compare.engine_comparison import Contest
from host.compare.selection import choose
from host.deploy import Contender, DeployOptions, Verification
from host.errors import EngineError, MeasureError, VerifyError
from host.model import Energy
from tests.unit.compare.samples import measurement

PASSED = Verification(1e-6, 1e-3, True)
FAILED = Verification(0.5, 1e-3, False, "output 'y' differs by 0.5")


@dataclass(frozen=True)
class Ratio:
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Paired:
    """A comparison with known ratios of the peer's time over ours."""

    ratios: dict[str, Ratio]
    energies: dict[str, Ratio]

    def ratio(self, numerator: str, denominator: str) -> Ratio:
        assert denominator == "tvm"
        return self.ratios[numerator]

    def energy_ratio(self, numerator: str, denominator: str) -> Ratio:
        assert denominator == "tvm"
        return self.energies[numerator]

    def edp_ratio(self, numerator: str, denominator: str) -> Ratio:
        time, energy = self.ratios[numerator], self.energies[numerator]
        return Ratio(time.value * energy.value, time.low * energy.low, time.high * energy.high)


def contest(
    ratio: Ratio,
    ours: Verification = PASSED,
    energy: tuple[Energy, Energy] | None = None,
    energy_ratio: Ratio | None = None,
) -> Contest:
    energies = energy or (measurement(1.0).energy,) * 2
    contenders = {
        "tvm": Contender("tvm", measurement(2.0, energy=energies[0]) if ours.passed else None, ours),
        "onnxruntime": Contender("onnxruntime", measurement(3.0, energy=energies[1]), PASSED),
    }
    return Contest(contenders, Paired({"onnxruntime": ratio}, {"onnxruntime": energy_ratio or ratio}))  # type: ignore[arg-type]


def options(backend: str = "auto", objective: str = "latency", cap_w: float | None = None) -> DeployOptions:
    return DeployOptions(Path("net.onnx"), backend=backend, objective=objective, power_cap_w=cap_w)


def joules(value: float, watts: float | None = None) -> Energy:
    return Energy("measured", value, value / 2, "rapl", "package", mean_w=watts)


def test_ours_is_taken_where_the_bound_shows_that_it_is_faster() -> None:
    choice = choose(contest(Ratio(1.2, 1.1, 1.3)), options(), "")
    assert choice.backend == "tvm"
    assert choice.ratio == (1.2, 1.1, 1.3)
    assert "1.10 to 1.30" in choice.why


def test_the_peer_is_taken_where_it_is_faster() -> None:
    choice = choose(contest(Ratio(0.8, 0.7, 0.9)), options(), "")
    assert choice.backend == "onnxruntime"
    assert "onnxruntime is faster" in choice.why


def test_without_a_shown_difference_the_library_stays() -> None:
    choice = choose(contest(Ratio(1.05, 0.98, 1.1)), options(), "")
    assert choice.backend == "onnxruntime"
    assert "no difference shown" in choice.why


def test_a_backend_that_was_asked_for_is_taken_though_slower() -> None:
    assert choose(contest(Ratio(0.5, 0.4, 0.6)), options("tvm"), "").backend == "tvm"


def test_wrong_outputs_are_never_installed() -> None:
    wrong = contest(Ratio(9, 9, 9), ours=FAILED)
    choice = choose(wrong, options(), "")
    assert choice.backend == "onnxruntime"
    assert "tvm gives wrong outputs: output 'y' differs by 0.5" in choice.why
    with pytest.raises(VerifyError, match=r"output 'y' differs by 0\.5"):
        choose(wrong, options("tvm"), "")


def test_a_fallback_names_its_reason() -> None:
    only = Contest({"onnxruntime": Contender("onnxruntime", measurement(3.0), PASSED)}, None)
    choice = choose(only, options(), "operator Foo is unknown")
    assert choice.backend == "onnxruntime"
    assert "operator Foo is unknown" in choice.why


def test_a_peer_in_another_format_is_never_installed() -> None:
    both = Contest({"torch": Contender("torch", measurement(3.0), PASSED)}, None)
    with pytest.raises(EngineError, match="no engine of the device"):
        choose(both, options(), "operator Foo is unknown")


def test_no_engine_at_all_is_one_clear_error() -> None:
    none = Contest({"onnxruntime": Contender("onnxruntime", None, None, "operator Foo is unknown")}, None)
    with pytest.raises(EngineError, match=r"can run the model: onnxruntime: operator Foo"):
        choose(none, options(), "tvm has no Foo")


def test_energy_decides_where_it_was_asked_for() -> None:
    both = (joules(3.0), joules(2.0))
    frugal = contest(Ratio(1.5, 1.4, 1.6), energy=both, energy_ratio=Ratio(0.67, 0.6, 0.7))
    assert choose(frugal, options(objective="energy"), "").backend == "onnxruntime"
    assert choose(frugal, options(), "").backend == "tvm"
    open_question = contest(Ratio(1.5, 1.4, 1.6), energy=both, energy_ratio=Ratio(1.1, 0.9, 1.3))
    assert choose(open_question, options(objective="energy"), "").backend == "onnxruntime"
    with pytest.raises(MeasureError, match="no energy figure"):
        choose(contest(Ratio(1.5, 1.4, 1.6)), options(objective="energy"), "")


def test_the_product_of_energy_and_delay_weighs_both() -> None:
    both = (joules(3.0), joules(2.0))
    frugal = contest(Ratio(1.5, 1.4, 1.6), energy=both, energy_ratio=Ratio(0.9, 0.8, 1.0))
    assert choose(frugal, options(objective="edp"), "").backend == "tvm"
    slow = contest(Ratio(1.1, 1.0, 1.2), energy=both, energy_ratio=Ratio(0.5, 0.4, 0.6))
    choice = choose(slow, options(objective="edp"), "")
    assert choice.backend == "onnxruntime"
    assert "onnxruntime has a smaller energy-delay product" in choice.why


def test_a_peer_above_the_power_cap_is_not_installed() -> None:
    faster = Ratio(0.5, 0.4, 0.6)
    hungry = contest(faster, energy=(joules(1.0, 4.0), joules(1.0, 9.0)))
    choice = choose(hungry, options(cap_w=5.0), "")
    assert (choice.backend, choice.why) == ("tvm", "no other verified backend stays below 5 W")
    assert choose(hungry, options(cap_w=10.0), "").backend == "onnxruntime"
    unknown = contest(faster, energy=(joules(1.0, 4.0), joules(1.0)))
    assert choose(unknown, options(cap_w=10.0), "").backend == "tvm"
