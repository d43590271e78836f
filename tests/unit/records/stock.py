"""A database of MetaSchedule as its own rules make it."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm.s_tir import meta_schedule as ms

from host.schedules import DesignSpace, space_for
from research.metaschedule import register_intrinsics, workload_module
from tests.unit.schedules import functions as fn

BOARD = fn.board()


def dense_space() -> DesignSpace:
    """Our space of the task that the database is of."""
    return space_for(fn.task(fn.dense(32, 32, 32), "dense"), BOARD.hardware, 1)


def stock_database(folder: Path) -> Path:
    """Three records of a sketch of stock rules: 30 us, one that did not run, one without times."""
    register_intrinsics("x86_64")
    folder.mkdir()
    target = tvm.target.Target({**BOARD.tvm_target, "num-cores": 1})
    module = workload_module(dense_space().task.function, 65536.0)
    database = ms.database.JSONDatabase(work_dir=str(folder))
    workload = database.commit_workload(module)
    with target:
        context = ms.TuneContext(
            module, target=target, space_generator="post-order-apply", task_name="main", num_threads=1
        )
        sketches = context.generate_design_space()
    arguments = ms.arg_info.ArgInfo.from_entry_func(module)
    for seconds in ([2e-5, 3e-5, 4e-5], [1e10], None):
        made = ms.database.TuningRecord(sketches[0].trace, workload, seconds, target, arguments)
        database.commit_tuning_record(made)
    return folder
