"""Whose energy a tuning measures: tasks that make up a share of the model's time."""

from __future__ import annotations

import random

from host.compile.tuning.kernel_tuning import with_energy
from host.options import CompileOptions, DeployOptions
from host.schedules.work import work_of
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import dense_space


def test_tasks_with_a_share_of_the_time_are_heavy_however_often_they_are_called() -> None:
    tasks = [
        TuningTask(dense_space("long"), 0.9e-3),
        TuningTask(dense_space("often", weight=10), 2.5e-6),
        TuningTask(dense_space("light"), 2.5e-6),
    ]
    assert {one.name: one.energy for one in with_energy(tasks)} == {
        "long": True,
        "often": True,
        "light": False,
    }
    assert not any(one.energy for one in tasks)


def test_only_an_objective_of_energy_takes_windows() -> None:
    assert not CompileOptions().weighs_energy and not DeployOptions().weighs_energy
    assert DeployOptions(objective="energy").weighs_energy and DeployOptions(objective="edp").weighs_energy


def test_what_a_program_does_is_its_task_and_its_traffic() -> None:
    space = dense_space("product")
    values = space.sample(random.Random(0))
    work = work_of(space, values)
    assert work.cores == 1 and work.multiply_adds == 16 * 64 * 64
    # Every argument once; all of them fit in a cache, so that nothing comes again.
    assert work.bytes == 4.0 * (16 * 64 + 64 * 64 + 16 * 64)
