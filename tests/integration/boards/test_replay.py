"""Boards out of a file: what is measured there is held against what the file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from host.errors import UserError
from host.measure.kernels import measure_kernel
from host.measure.variants import VariantRunner
from host.transport import connect
from tests.integration.agent.conftest import bundle, faults, golden, variants
from tests.integration.boards.cli import deployed
from tests.integration.small_models import convnet

__all__ = ["bundle", "faults", "golden", "variants"]

EXAMPLE = Path(__file__).parents[3] / "examples" / "replay" / "small_board.toml"
IDLE_W, ACTIVE_W, SECONDS = 2.0, 8.0, 0.02
SCENARIO = """
schema = "edgetlm-replay/1"
seed = {seed}
[machine]
frequency_hz = 1.5e9
frequencies_hz = [0.75e9, 1.1e9]
[latency]
spread = 0.01
models = [{{ name = "onnxruntime", seconds = {seconds} }}]
[power]
idle_w = {idle}
active_w = {active}
noise_w = 0.2
[thermal]
ambient_c = 25.0
resistance_c_per_w = {resistance}
time_constant_s = 10.0
limit_c = 70.0
recover_c = 60.0
throttled_speed = 0.5
"""
GIVEN = [np.ones((1, 3, 16, 16), "float32")]


def _board(folder: Path, seed: int = 0, resistance: float = 2.0) -> str:
    path = folder / "board.toml"
    text = SCENARIO.format(seed=seed, seconds=SECONDS, idle=IDLE_W, active=ACTIVE_W, resistance=resistance)
    path.write_text(text)
    return f"replay:{path}"


def _true_watts(threads: int, cores: int) -> float:
    return IDLE_W + (ACTIVE_W - IDLE_W) * threads / cores


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_energy_is_the_files(seed: int, tmp_path: Path) -> None:
    """Within 2%, through the real sensor, protocol and arithmetic; above idle too."""
    with connect(_board(tmp_path, seed)) as device:
        cores = device.describe().cores
        with device.open_session("onnxruntime") as session:
            session.load(convnet(tmp_path / "net.onnx"))
            measured = session.measure(GIVEN)
    watts = _true_watts(1, cores)
    energy = measured.energy
    assert energy.kind == "simulated" and not measured.throttled
    assert measured.median_s == pytest.approx(SECONDS, rel=0.01)
    assert energy.gross_j == pytest.approx(watts * SECONDS, rel=0.02)
    assert energy.above_idle_j == pytest.approx((watts - IDLE_W) * SECONDS, rel=0.02)


PROGRAMS = """
schema = "edgetlm-replay/1"
[machine]
frequency_hz = 1.5e9
[latency]
kernels = [{ name = "matmul", seconds = 0.002 }]
[power]
idle_w = 2.0
active_w = 8.0
core_w = 1.5
multiply_add_pj = 100.0
byte_pj = 1000.0
[thermal]
resistance_c_per_w = 0.0
"""


@pytest.mark.parametrize(
    ("program", "watts"),
    [
        # 2 W at rest, 1.5 W a core, 100 pJ for each of 10 million products, 1 nJ for each of 2 million bytes.
        ({"cores": 1, "multiply_adds": 1e7, "bytes": 0.0}, 2.0 + 1.5 + 0.5),
        ({"cores": 1, "multiply_adds": 1e7, "bytes": 2e6}, 2.0 + 1.5 + 0.5 + 1.0),
        ({"cores": 2, "multiply_adds": 0.0, "bytes": 0.0}, 2.0 + 3.0),
        # Figures that no program has are none: the power is then that of busy cores.
        ({"cores": 1, "multiply_adds": -1.0, "bytes": 0.0}, None),
        (None, None),
    ],
)
def test_the_power_of_a_kernel_is_that_of_its_program(tmp_path: Path, bundle, program, watts) -> None:
    path = tmp_path / "board.toml"
    path.write_text(PROGRAMS)
    shapes = [((4, 64), "float32"), ((64, 32), "float32"), ((4, 32), "float32")]
    with connect(f"replay:{path}") as device, device.open_session("tvm", threads=1) as session:
        cores = device.describe().cores
        found = measure_kernel(session, bundle / "lib.so", "matmul", shapes, work=program or {})
    expected = 2.0 + 6.0 / cores if watts is None else watts
    assert found.energy.kind == "simulated" and found.energy.trials == 2
    assert found.energy.mean_w == pytest.approx(expected, rel=0.01)
    assert found.energy.gross_j == pytest.approx(expected * 0.002, rel=0.01)


def test_throttling_is_seen_and_marked(tmp_path: Path) -> None:
    """It gets hot within every window: measured again, and then marked."""
    with (
        connect(_board(tmp_path, resistance=12.0)) as device,
        device.open_session("onnxruntime", threads=1) as session,
    ):
        session.load(convnet(tmp_path / "net.onnx"))
        measured = session.measure(GIVEN)
    assert measured.throttled and not measured.trusted
    assert measured.conditions["retries"] > 0
    assert any("throttled" in reason for reason in measured.throttle_reasons)
    assert max(measured.times_s) > 1.5 * min(measured.times_s)


KERNELS = """
schema = "edgetlm-replay/1"
[latency]
factor = 1e3
kernels = [
    { name = "mat*", seconds = 0.002 },
    { name = "fine", seconds = 60.0 },
    { name = "relu", seconds = 0.004 },
]
[power]
idle_w = 2.0
active_w = 8.0
"""


def test_kernels_of_variants_take_what_the_file_says(tmp_path: Path, bundle, golden, variants) -> None:
    path = tmp_path / "board.toml"
    path.write_text(KERNELS)
    libraries = [variants[name] for name in ("own", "reordered", "fine")]
    with connect(f"replay:{path}") as device, device.open_session("tvm", threads=1) as session:
        session.load(bundle)
        session.set_inputs([golden["x"], golden["unused"]])
        with VariantRunner(session) as runner:
            measured = runner.measure(libraries, runs=5)
    assert [variant.slow for variant in measured.variants] == [False, False, True]
    for variant in measured.variants[:2]:
        assert variant.times_s["matmul"] == pytest.approx([0.002] * 5)
        assert variant.times_s["relu"] == pytest.approx([0.004] * 5)
        # Nothing is recorded of it: a thousand times what it takes on this machine, which is above 100 ns.
        assert variant.times_s["sum"] == pytest.approx([variant.times_s["sum"][0]] * 5)
        assert variant.times_s["sum"][0] > 1e-4
    assert measured.variants[2].times_s["fine"] == pytest.approx([60.0])


def test_a_slower_clock_takes_longer_and_less_power(tmp_path: Path) -> None:
    figures = {}
    with connect(_board(tmp_path)) as device:
        for mode in ("cpu-100%", "cpu-50%"):
            device.request("modes.set", mode=mode)
            with device.open_session("onnxruntime") as session:
                session.load(convnet(tmp_path / "net.onnx"))
                figures[mode] = session.measure(GIVEN)
    full, half = figures["cpu-100%"], figures["cpu-50%"]
    assert half.median_s == pytest.approx(2 * full.median_s, rel=0.02)
    assert half.energy.mean_w < full.energy.mean_w


def test_the_whole_way_runs_on_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A run of so small a model is over too soon for a simulation in Python to take its time.
    slow = tmp_path / "example.toml"
    slow.write_text(EXAMPLE.read_text().replace("factor = 3.0", "factor = 100.0"))
    result = deployed(capsys, convnet(tmp_path / "net.onnx"), f"replay:{slow}", tmp_path)
    watts = 2.1 + (6.4 - 2.1) / _cores(slow)
    assert result["energy_mj"]["kind"] == "simulated" and result["simulated"]
    assert result["energy_mj"]["value"] == pytest.approx(watts * result["latency_ms"]["median"], rel=0.02)
    assert "VIN" in (tmp_path / "report.html").read_text()


def _cores(path: Path) -> int:
    with connect(f"replay:{path}") as device:
        return device.describe().cores


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('schema = "edgetlm-replay/1"', "power"),
        ('schema = "edgetlm-replay/9"\n[power]\nidle_w = 1\nactive_w = 2', "schema"),
        ('schema = "edgetlm-replay/1"\n[power]\nidle_w = 3\nactive_w = 2', "active_w has to be above"),
        ('schema = "edgetlm-replay/1"\n[power]\nidle_w = 1\nactive_w = 2\nwatt = 3', "watt"),
        ("schema = ", "cannot be read"),
    ],
)
def test_a_file_that_describes_no_board_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        connect(f"replay:{path}")
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        connect(f"replay:{tmp_path / 'none.toml'}")
