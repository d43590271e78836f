"""Kernels of variants of a model, timed inside of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from host.errors import MeasureError, SessionLost
from host.measure.variants import VariantRunner
from tests.integration.agent.conftest import resident_mb

# Whether a run of microseconds counts as slow is left to chance on a busy machine.
NEVER = 1e6


@pytest.fixture
def bound(device, bundle, golden):
    """A session in which a model could run."""
    with device.open_session("tvm") as session:
        session.load(bundle)
        session.set_inputs([golden["x"], golden["unused"]])
        yield session


def test_every_kernel_of_every_variant_is_timed_in_each_run(bound, variants):
    libraries = [variants[name] for name in ("own", "reordered", "fine")]
    with VariantRunner(bound) as runner:
        measured = runner.measure(libraries, runs=4, slowest=NEVER)
    kernels = [list(variant.times_s) for variant in measured.variants]
    assert kernels == [["matmul", "relu", "sum"], ["matmul", "relu", "sum"], ["matmul", "fine", "sum"]]
    for variant in measured.variants:
        assert not variant.slow
        assert all(len(times) == 4 and min(times) > 0 for times in variant.times_s.values())
    assert measured.state.threads == 1 and measured.state.times_s == ()
    assert measured.state.state_before["time_s"] <= measured.state.state_after["time_s"]
    assert measured.state.energy.kind == "unavailable"


def test_a_slow_variant_runs_once_and_the_first_is_never_slow(bound, variants):
    with VariantRunner(bound) as runner:
        fast = runner.measure([variants["own"], variants["slow"]], runs=3)
        only = runner.measure([variants["slow"], variants["slow"]], runs=2)
    assert [variant.slow for variant in fast.variants] == [False, True]
    assert [len(variant.times_s["sum"]) for variant in fast.variants] == [3, 1]
    assert fast.variants[1].times_s["slow"][0] >= 0.3
    assert [variant.slow for variant in only.variants] == [False, False]
    assert [len(variant.times_s["slow"]) for variant in only.variants] == [2, 2]


def test_one_round_is_completed_whatever_the_limit(bound, variants):
    with VariantRunner(bound) as runner:
        measured = runner.measure([variants["own"], variants["reordered"]], max_s=0.0, slowest=NEVER)
    assert [len(variant.times_s["matmul"]) for variant in measured.variants] == [1, 1]


def test_the_model_of_the_session_goes_on_as_before(bound, variants, golden):
    with VariantRunner(bound) as runner:
        for _ in range(2):
            runner.measure([variants["fine"], variants["reordered"]], runs=2, slowest=NEVER)
            z, s = bound.run([golden["x"], golden["unused"]])
            np.testing.assert_allclose(z, golden["z"], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(s, golden["s"], rtol=1e-4)


def test_a_session_without_model_or_inputs_says_so(device, bundle, variants):
    with device.open_session("tvm") as session, VariantRunner(session) as runner:
        with pytest.raises(
            MeasureError, match="variants of the model cannot be measured: no model is loaded"
        ):
            runner.measure([variants["own"]])
        session.load(bundle)
        with pytest.raises(MeasureError, match="no inputs are set in this session; send some first"):
            runner.measure([variants["own"]])


def test_what_is_no_variant_is_an_error_that_says_which(bound, variants, faults, tmp_path):
    (tmp_path / "text.so").write_text("no library")
    with VariantRunner(bound) as runner:
        with pytest.raises(MeasureError, match=r"variant 1.*(vm_load_executable|no program)"):
            runner.measure([variants["own"], faults])
        with pytest.raises(MeasureError, match=r"tvm cannot run variant 1: .*16"):
            runner.measure([variants["own"], variants["other model"]])
        with pytest.raises(MeasureError, match="variant 1 of the model cannot be measured"):
            runner.measure([variants["own"], tmp_path / "text.so"])
        with pytest.raises(MeasureError, match="no variant is given"):
            runner.measure([])
        with pytest.raises(MeasureError, match="at least one run"):
            runner.measure([variants["own"]], runs=0)
        with pytest.raises(MeasureError, match="max_s is -1"):
            runner.measure([variants["own"]], max_s=-1.0)
        assert runner.measure([variants["own"]], runs=1).variants[0].times_s["matmul"][0] > 0


def test_a_variant_that_crashes_costs_the_executor_only(bound, bundle, variants, golden):
    with VariantRunner(bound) as runner:
        first = bound.pid
        with pytest.raises(SessionLost, match="variants of the model: the tvm executor crashed with SIGSEGV"):
            runner.measure([variants["own"], variants["crash"]])
        with pytest.raises(MeasureError, match="no model is loaded"):
            runner.measure([variants["own"]])
        bound.load(bundle)
        bound.set_inputs([golden["x"], golden["unused"]])
        assert not runner.measure([variants["own"]], runs=1).variants[0].slow
        assert bound.pid != first


def test_variants_do_not_pile_up_on_the_device(bound, variants, faults):
    libraries = [variants["own"], variants["reordered"], variants["fine"]]

    def measure_some(count):
        for _ in range(count):
            runner.measure(libraries, runs=1, slowest=NEVER)
            with pytest.raises(MeasureError):
                runner.measure([variants["own"], faults], runs=1)
        maps = Path(f"/proc/{bound.pid}/maps").read_text().splitlines()
        return sum(".so (deleted)" in line for line in maps), resident_mb(bound.pid)

    with VariantRunner(bound) as runner:
        measure_some(5)
        _, before_mb = measure_some(1)
        mapped, after_mb = measure_some(30)
    assert mapped == 0
    assert after_mb <= before_mb + 5
