"""The cores on which the threads of a session compute."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from host.build import build_kernel_library
from host.measure.kernels import KernelRunner

CORES = len(os.sched_getaffinity(0))
ROWS = [((4096, 16), "float32")] * 2


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    """A library of a kernel `doubled`, whose loop threads share."""
    import tvm
    from tvm import s_tir, te

    a = te.placeholder(ROWS[0][0], "float32", "a")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2.0, "b")
    schedule = s_tir.Schedule(te.create_prim_func([a, b]))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("b"))[0])
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})
    path = tmp_path_factory.mktemp("shared") / "doubled.so"
    return build_kernel_library({"doubled": schedule.mod["main"]}, path, target)


def cores_of_bound_threads(pid: int) -> list[int]:
    """The core of each thread that may use one core alone."""
    found = []
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)$", status.read_text(), re.MULTILINE)
        if allowed is not None and allowed[1].isdigit():
            found.append(int(allowed[1]))
    return sorted(found)


@pytest.mark.skipif(
    CORES < 2 or os.cpu_count() != CORES,
    reason="this process may not use several cores, and all that there are",
)
def test_workers_have_a_core_each_where_threads_take_all_cores(device, shared):
    with device.open_session("tvm", threads=CORES) as session, KernelRunner(session) as runner:
        assert runner.measure(shared, "doubled", ROWS, repeat=1).n == 1
        cores = cores_of_bound_threads(session.pid)
    assert len(cores) == len(set(cores)) == CORES - 1
