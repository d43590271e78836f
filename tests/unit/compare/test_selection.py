from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from host.compare.backends import Choice, select_backend
from host.compare.comparison import EngineComparison
from host.compare.entrants import EntrantResult
from host.compare.verification import Verification
from host.errors import EngineError, MeasureError, VerifyError
from host.model import Energy, Measurement
from host.statistics import t975
from tests.unit.compare.samples import measurement

PASSED = Verification(1e-6, 1e-3, True)
FAILED = Verification(0.5, 1e-3, False, "output 'y' differs by 0.5")


@dataclass(frozen=True)
class Ratio:
    """A ratio of the peer's figure over ours, and how far above it the 95% bound lies."""

    value: float
    high: float

    def times(self, ours: float, pairs: int) -> tuple[float, ...]:
        """Figures of the peer, so many, whose paired ratios to ours have this mean and this bound."""
        off = math.log(self.high / self.value) * math.sqrt(pairs - 1) / t975(pairs - 1)
        return tuple(ours * self.value * math.exp(off if index % 2 else -off) for index in range(pairs))


def comparison(
    ratio: Ratio,
    ours: Verification = PASSED,
    energy: tuple[Energy, Energy] | None = None,
    energy_ratio: Ratio | None = None,
) -> EngineComparison:
    """Ours, which takes 2 ms, and a peer beside it in twelve rounds and six windows of energy."""
    energies = energy or (measurement(1.0).energy,) * 2
    mine = theirs = ()
    if energy_ratio is not None:
        spent = energies[0].gross_j
        assert spent is not None
        mine = tuple(window(2.0, energies[0]) for _ in range(6))
        theirs = tuple(
            window(3.0, replace(energies[1], gross_j=joules)) for joules in energy_ratio.times(spent, 6)
        )
    compiled = EntrantResult("tvm", None, ours)
    if ours.passed:
        compiled = replace(
            compiled, measurement=measurement(2.0, energy=energies[0]), rounds_s=(2e-3,) * 12, windows=mine
        )
    peer = EntrantResult(
        "onnxruntime",
        measurement(3.0, energy=energies[1]),
        PASSED,
        rounds_s=ratio.times(2e-3, 12),
        windows=theirs,
    )
    return EngineComparison({"tvm": compiled, "onnxruntime": peer})


def window(milliseconds: float, energy: Energy) -> Measurement:
    return Measurement((milliseconds * 1e-3,), energy, {}, {}, 1)


def choose(
    found: EngineComparison,
    backend: str = "auto",
    objective: str = "latency",
    cap_w: float | None = None,
    fallback: str = "",
) -> Choice:
    return select_backend(found, backend, objective, cap_w, fallback)


def joules(value: float, watts: float | None = None) -> Energy:
    return Energy("measured", value, value / 2, "rapl", "package", mean_w=watts)


def test_ours_is_taken_where_the_bound_shows_that_it_is_faster() -> None:
    choice = choose(comparison(Ratio(1.2, 1.3)))
    assert choice.backend == "tvm"
    assert choice.ratio == pytest.approx((1.2, 1.2**2 / 1.3, 1.3))
    assert "1.11 to 1.30" in choice.why


def test_the_peer_is_taken_where_it_is_faster() -> None:
    choice = choose(comparison(Ratio(0.8, 0.9)))
    assert choice.backend == "onnxruntime"
    assert "onnxruntime is faster" in choice.why


def test_without_a_shown_difference_the_library_stays() -> None:
    choice = choose(comparison(Ratio(1.05, 1.12)))
    assert choice.backend == "onnxruntime"
    assert "no difference shown" in choice.why


def test_a_backend_that_was_asked_for_is_taken_though_slower() -> None:
    assert choose(comparison(Ratio(0.5, 0.6)), "tvm").backend == "tvm"


def test_wrong_outputs_are_never_installed() -> None:
    wrong = comparison(Ratio(9, 9), ours=FAILED)
    choice = choose(wrong)
    assert choice.backend == "onnxruntime"
    assert "tvm gives wrong outputs: output 'y' differs by 0.5" in choice.why
    with pytest.raises(VerifyError, match=r"output 'y' differs by 0\.5"):
        choose(wrong, "tvm")


def test_a_fallback_names_its_reason() -> None:
    only = EngineComparison({"onnxruntime": EntrantResult("onnxruntime", measurement(3.0), PASSED)})
    choice = choose(only, fallback="operator Foo is unknown")
    assert choice.backend == "onnxruntime"
    assert "operator Foo is unknown" in choice.why


def test_a_peer_in_another_format_is_never_installed() -> None:
    both = EngineComparison({"torch": EntrantResult("torch", measurement(3.0), PASSED)})
    with pytest.raises(EngineError, match="no engine of the device"):
        choose(both, fallback="operator Foo is unknown")


def test_a_peer_that_runs_another_file_leaves_the_reason_why_ours_cannot() -> None:
    peer = EntrantResult("onnxruntime", measurement(3.0), PASSED, deployable=False)
    with pytest.raises(EngineError, match=r"runs another file of it.*\(tvm: operator Foo is unknown\)"):
        choose(EngineComparison({"onnxruntime": peer}), fallback="operator Foo is unknown")


def test_no_engine_at_all_is_one_clear_error() -> None:
    none = EngineComparison(
        {"onnxruntime": EntrantResult("onnxruntime", None, None, "operator Foo is unknown")}
    )
    with pytest.raises(EngineError, match=r"can run the model: onnxruntime: operator Foo"):
        choose(none, fallback="tvm has no Foo")


def test_energy_decides_where_it_was_asked_for() -> None:
    both = (joules(3.0), joules(2.0))
    frugal = comparison(Ratio(1.5, 1.6), energy=both, energy_ratio=Ratio(0.67, 0.7))
    assert choose(frugal, objective="energy").backend == "onnxruntime"
    assert choose(frugal).backend == "tvm"
    open_question = comparison(Ratio(1.5, 1.6), energy=both, energy_ratio=Ratio(1.1, 1.3))
    assert choose(open_question, objective="energy").backend == "onnxruntime"
    with pytest.raises(MeasureError, match="no energy figure"):
        choose(comparison(Ratio(1.5, 1.6)), objective="energy")


def test_the_product_of_energy_and_delay_weighs_both() -> None:
    both = (joules(3.0), joules(2.0))
    frugal = comparison(Ratio(1.5, 1.6), energy=both, energy_ratio=Ratio(0.9, 1.0))
    assert choose(frugal, objective="edp").backend == "tvm"
    slow = comparison(Ratio(1.1, 1.2), energy=both, energy_ratio=Ratio(0.5, 0.6))
    choice = choose(slow, objective="edp")
    assert choice.backend == "onnxruntime"
    assert "onnxruntime has a smaller energy-delay product" in choice.why


def test_a_peer_above_the_power_cap_is_not_installed() -> None:
    faster = Ratio(0.5, 0.6)
    hungry = comparison(faster, energy=(joules(1.0, 4.0), joules(1.0, 9.0)))
    choice = choose(hungry, cap_w=5.0)
    assert (choice.backend, choice.why) == ("tvm", "no other verified backend stays below 5 W")
    assert choose(hungry, cap_w=10.0).backend == "onnxruntime"
    unknown = comparison(faster, energy=(joules(1.0, 4.0), joules(1.0)))
    assert choose(unknown, cap_w=10.0).backend == "tvm"


def beside_tensorrt(own: Ratio, board: Ratio) -> EngineComparison:
    """Ours beside the user's library and TensorRT."""
    found = comparison(own)
    peer = found.results["onnxruntime"]
    theirs = replace(peer, name="tensorrt-fp16", rounds_s=board.times(2e-3, 12))
    return EngineComparison({**found.results, "tensorrt-fp16": theirs})


def test_an_engine_of_the_board_is_installed_where_it_is_faster() -> None:
    choice = choose(beside_tensorrt(Ratio(5.0, 6.0), Ratio(0.8, 0.9)))
    assert choice.backend == "tensorrt-fp16"
    assert choice.why.startswith("tensorrt-fp16 is faster: tensorrt-fp16 / tvm = 0.80")


@pytest.mark.parametrize("own", [Ratio(5.0, 6.0), Ratio(1.2, 1.3)])
def test_ours_stays_beside_an_engine_of_the_board_that_is_not_faster(own: Ratio) -> None:
    choice = choose(beside_tensorrt(own, Ratio(1.02, 1.12)))
    assert choice.backend == "tvm"


def test_without_the_users_library_a_tie_with_the_board_leaves_ours() -> None:
    found = beside_tensorrt(Ratio(5.0, 6.0), Ratio(1.02, 1.12))
    results = {name: one for name, one in found.results.items() if name != "onnxruntime"}
    choice = choose(EngineComparison(results))
    assert choice.backend == "tvm"
    assert "no difference shown, so tvm stays: tensorrt-fp16 / tvm = 1.02" in choice.why


def test_where_ours_is_wrong_the_fastest_engine_is_installed() -> None:
    found = comparison(Ratio(9, 9), ours=FAILED)
    other = found.results["onnxruntime"]
    theirs = replace(other, name="tensorrt", measurement=measurement(1.0), rounds_s=(1e-3,) * 12)
    assert choose(EngineComparison({**found.results, "tensorrt": theirs})).backend == "tensorrt"


def test_of_two_engines_of_the_board_the_one_that_is_shown_faster_is_installed() -> None:
    found = beside_tensorrt(Ratio(5.0, 6.0), Ratio(0.90, 1.05))
    cuda = replace(
        found.results["onnxruntime"], name="onnxruntime-cuda", rounds_s=Ratio(0.93, 0.95).times(2e-3, 12)
    )
    choice = choose(EngineComparison({**found.results, "onnxruntime-cuda": cuda}))
    assert choice.backend == "onnxruntime-cuda"
    assert "onnxruntime-cuda / tvm = 0.93" in choice.why


def test_an_engine_of_the_board_takes_the_librarys_place_only_where_it_is_faster_than_it() -> None:
    found = beside_tensorrt(Ratio(0.80, 0.82), Ratio(0.79, 0.85))
    assert choose(found).backend == "onnxruntime"
    assert choose(beside_tensorrt(Ratio(0.80, 0.82), Ratio(0.70, 0.75))).backend == "tensorrt-fp16"


def without_ours(
    own: tuple[float, Energy], board: tuple[float, Energy], spread: float = 1.01
) -> EngineComparison:
    """The user's library and TensorRT, where ours is wrong: seconds over 2 ms, and joules with watts."""
    both = {}
    for name, (ratio, energy) in (("onnxruntime", own), ("tensorrt", board)):
        spent = energy.gross_j
        assert spent is not None
        # Only those of the board vary, so that pairs do.
        high = spread if name == "tensorrt" else 1.0
        each = Ratio(1.0, high).times(spent, 6)
        both[name] = EntrantResult(
            name,
            measurement(2.0 * ratio, energy=energy),
            PASSED,
            rounds_s=Ratio(ratio, ratio * high).times(2e-3, 12),
            windows=tuple(window(2.0 * ratio, replace(energy, gross_j=joules)) for joules in each),
        )
    return EngineComparison({"tvm": EntrantResult("tvm", None, FAILED), **both})


def test_without_ours_the_objective_and_the_cap_decide_too() -> None:
    hungry = without_ours((2.0, joules(1.0, 4.0)), (1.0, joules(9.0, 40.0)))
    assert choose(hungry).backend == "tensorrt"
    assert choose(hungry, cap_w=10.0).backend == "onnxruntime"
    assert choose(hungry, objective="energy").backend == "onnxruntime"
    assert choose(hungry, objective="energy", cap_w=10.0).backend == "onnxruntime"
    frugal = without_ours((1.0, joules(9.0, 40.0)), (2.0, joules(1.0, 4.0)))
    assert choose(frugal, objective="energy").backend == "tensorrt"
    assert choose(frugal, cap_w=10.0).backend == "tensorrt"


def test_without_ours_the_library_stays_where_the_board_is_not_shown_faster() -> None:
    near = without_ours((1.0, joules(1.0)), (0.97, joules(1.0)), spread=1.05)
    assert choose(near).backend == "onnxruntime"


def test_without_ours_no_engine_above_the_cap_is_installed() -> None:
    hungry = without_ours((2.0, joules(1.0, 40.0)), (1.0, joules(9.0)))
    with pytest.raises(
        MeasureError, match=r"--power-cap 10: tvm gives .*onnxruntime 40\.00 W, tensorrt unknown"
    ):
        choose(hungry, cap_w=10.0)
