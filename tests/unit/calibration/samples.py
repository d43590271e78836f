"""A calibration that makes sense, for the tests of this folder."""

from __future__ import annotations

from host.calibration import Calibration, CurvePoint, LevelFigures, machine_hash
from targets import Board, MachineDescription, board_for

MACHINE = MachineDescription(
    "x86_64",
    "Example CPU",
    4,
    ("avx2", "fma"),
    {"L1": 32 << 10, "L2": 512 << 10, "L3": 8 << 20},
    3.0e9,
    8 << 30,
)


def board() -> Board:
    found = board_for(MACHINE)
    assert found is not None
    return found


def calibration() -> Calibration:
    """4 GHz and two multiply-adds of eight lanes in a cycle: 128 GFLOP/s."""
    return Calibration(
        device="desk",
        board=board().name,
        machine=machine_hash(MACHINE, board()),
        date="2026-11-21T10:00:00+00:00",
        versions={"tvm": "0.27"},
        seconds=5.0,
        vector_bits=256,
        frequency_hz=4.0e9,
        peak_flops=127.2e9,
        fma_latency_cycles=4.0,
        levels=(
            LevelFigures("L1", 24 << 10, 200e9, 1.2e-9),
            LevelFigures("L2", 128 << 10, 100e9, 4e-9),
            LevelFigures("L3", 2 << 20, 60e9, 15e-9),
            LevelFigures("DRAM", 128 << 20, 22e9, 100e-9),
        ),
        parallel_launch_s=3e-6,
        threads=4,
        load=0.0,
        spread=1.01,
        curve=(CurvePoint(16 << 10, 199e9), CurvePoint(128 << 20, 22e9)),
    )
