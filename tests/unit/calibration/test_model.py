from __future__ import annotations

import json
from dataclasses import replace

import pytest

from host.calibration import Calibration, LevelFigures, machine_hash
from host.errors import UserError
from tests.unit.calibration.samples import MACHINE, board, calibration


def test_measured_values_replace_the_declared_ones_and_nothing_else() -> None:
    declared = board().hardware
    model = calibration().applied(declared)
    assert model.source == "calibrated"
    assert model.frequency_hz == 4.0e9
    assert model.peak_flops == 127.2e9
    assert model.fma_per_cycle == 2.0, "1.99 is two, measured with noise"
    assert model.parallel_launch_s == 3e-6
    assert [level.bandwidth_bytes_per_s for level in model.levels] == [200e9, 100e9, 60e9, 22e9]
    assert [level.size_bytes for level in model.levels] == [level.size_bytes for level in declared.levels]
    assert (model.vector_bits, model.vector_registers) == (declared.vector_bits, declared.vector_registers)


def test_one_core_keeps_the_declared_cost_of_a_parallel_loop() -> None:
    declared = board().hardware
    model = replace(calibration(), parallel_launch_s=None).applied(declared)
    assert model.parallel_launch_s == declared.parallel_launch_s


def test_plausible_figures_raise_no_complaint() -> None:
    assert calibration().complaints(board().hardware) == []


def changed(position: int, **values: float) -> Calibration:
    levels = list(calibration().levels)
    levels[position] = replace(levels[position], **values)
    return replace(calibration(), levels=tuple(levels))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (changed(2, bandwidth_bytes_per_s=150e9), "L3 (150 GB/s) faster than L2 (100 GB/s)"),
        (changed(3, latency_s=5e-9), "DRAM (5.0 ns) nearer than L3 (15.0 ns)"),
        (changed(0, bandwidth_bytes_per_s=900e9), "L1 at 900 GB/s, more than 4 loads a cycle"),
        (replace(calibration(), peak_flops=3e9), "a peak of 3.0 GFLOP/s where 96.0 is declared"),
        (replace(calibration(), frequency_hz=2e10), "a clock of 20.00 GHz"),
        (replace(calibration(), fma_latency_cycles=0.5), "a multiply-add of 0.5 cycles"),
        (replace(calibration(), parallel_launch_s=0.5), "500000 us to start a parallel loop"),
        (replace(calibration(), spread=2.5), "rounds of the same work that differ 2.5 times"),
    ],
)
def test_what_cannot_be_is_named(found: Calibration, words: str) -> None:
    assert any(words in complaint for complaint in found.complaints(board().hardware))


def test_a_little_noise_is_no_complaint() -> None:
    assert changed(2, bandwidth_bytes_per_s=110e9).complaints(board().hardware) == []


def test_stored_form_comes_back_as_it_was() -> None:
    text = json.dumps(calibration().to_json())
    assert Calibration.from_json(json.loads(text)) == calibration()


def test_other_schemas_and_damage_are_refused() -> None:
    content = calibration().to_json()
    with pytest.raises(UserError, match="schema 'other/1'"):
        Calibration.from_json({**content, "schema": "other/1"})
    del content["peak_flops"]
    with pytest.raises(UserError, match="damaged"):
        Calibration.from_json(content)


def test_the_hash_knows_another_machine_but_not_another_day() -> None:
    same = replace(MACHINE, cores=2, memory_bytes=1, frequency_hz=1e9, software={"tvm": "0.28"})
    other = replace(MACHINE, cache_bytes={**MACHINE.cache_bytes, "L3": 4 << 20})
    narrow = replace(board(), hardware=replace(board().hardware, vector_bits=128))
    assert machine_hash(same, board()) == machine_hash(MACHINE, board())
    assert machine_hash(other, board()) != machine_hash(MACHINE, board())
    assert machine_hash(MACHINE, narrow) != machine_hash(MACHINE, board())


def test_levels_that_were_not_measured_stay_declared() -> None:
    only = (LevelFigures("L1", 24 << 10, 200e9, 1.2e-9),)
    model = replace(calibration(), levels=only).applied(board().hardware)
    assert model.levels[0].bandwidth_bytes_per_s == 200e9
    assert model.levels[1:] == board().hardware.levels[1:]
