"""A device agent of the tests' own, a small compiled model, and kernels that misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.transport.device import Device
from host.transport.local import LocalAgent, connect_local
from tests.integration.agent.service import Service
from tests.signing import seal

FAULTS = """
#include <stdlib.h>
#include <unistd.h>
#define KERNEL(name) int __tvm_ffi_##name(void *self, const void *arguments, int count, void *result)
KERNEL(fine) { return 0; }
KERNEL(crash) { *(volatile int *)8 = 1; return 0; }
KERNEL(quit) { _exit(3); }
KERNEL(slow) { usleep(300000); return 0; }
KERNEL(spin) { for (volatile int i = 0;; i++) {} }
KERNEL(hang) { for (;;) sleep(1); }
KERNEL(eat) {
    for (;;) {
        volatile char *p = malloc(1 << 24);
        for (int i = 0; i < 1 << 24; i += 512) p[i] = 1;
        usleep(5000);
    }
}
"""


def link(output, objects, **_):
    """Objects to a library without a C toolchain."""
    command = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "--hash-style=gnu", "-o", str(output)]
    subprocess.run([*command, *map(str, objects)], check=True, capture_output=True)


@pytest.fixture(scope="session")
def faults(tmp_path_factory) -> Path:
    """A library of kernels `fine`, `crash`, `quit`, `slow`, `spin`, `hang` and `eat`; its object."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.c").write_text(FAULTS)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-c", "-O1", "-fPIC", "-fno-sanitize=all", "-g0"]
    subprocess.run([*compiler, "faults.c", "-o", "faults.o"], cwd=folder, check=True, capture_output=True)
    link(folder / "faults.so", [folder / "faults.o"])
    return folder / "faults.so"


def write_library(
    path: Path,
    defect: float = 0.0,
    relu: str = "",
    reordered: bool = False,
    inner: int = 64,
    objects: Sequence[Path] = (),
) -> Path:
    """A library of z = relu(x @ w), s = sum(z); takes an input `unused` too.

    Args:
        path: of the library.
        defect: added to what relu gives, for a model that is wrong.
        relu: a kernel of `objects` in place of relu; what it does not write is undefined.
        reordered: another program for the product: its loops in another order.
        inner: columns of x; another number than the bundle's makes another model.
        objects: files to link with the model.
    """
    import tvm
    from tvm import relax, s_tir

    x = relax.Var("x", relax.TensorType((4, inner), "float32"))
    unused = relax.Var("unused", relax.TensorType((1,), "int64"))
    w = relax.Var("w", relax.TensorType((inner, 32), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, unused, w]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            if relu:
                result_type = relax.TensorType((4, 32), "float32")
                z = builder.emit(relax.op.call_dps_packed(relu, relax.Tuple([product]), result_type))
            else:
                z = builder.emit(relax.op.nn.relu(product))
            if defect:
                z = builder.emit(relax.op.add(z, relax.const(np.float32(defect))))
            s = builder.emit(relax.op.sum(z, axis=[1]))
            result = builder.emit_output(relax.Tuple([z, s]))
        builder.emit_func_output(result)
    schedule = s_tir.Schedule(relax.transform.LegalizeOps()(builder.get()))
    if reordered:
        schedule.work_on("matmul")
        first, *_, last = schedule.get_loops(schedule.get_sblock("matmul"))
        schedule.reorder(last, first)
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 1})

    def linked(output: str, parts: Sequence[str], **_: Any) -> None:
        link(output, [*parts, *objects])

    tvm.compile(schedule.mod, target).export_library(str(path), fcompile=linked)
    return path


def write_bundle(folder: Path, scale: float = 1.0, defect: float = 0.0) -> Path:
    """A bundle of the model of `write_library`.

    Args:
        folder: of the bundle.
        scale: of the weights.
        defect: see `write_library`.
    """
    folder.mkdir(parents=True)
    write_library(folder / "lib.so", defect)
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((64, 32)) * scale).astype("float32")
    (folder / "params.bin").write_bytes(weights.tobytes())
    value = rng.standard_normal((4, 64)).astype("float32")
    z_golden = np.maximum(value @ weights, 0) + np.float32(defect)
    np.savez(folder / "golden.npz", x=value, unused=np.zeros(1, "int64"), z=z_golden, s=z_golden.sum(1))
    write_manifest(folder)
    return folder


def tensor(name, shape, dtype="float32"):
    return {"name": name, "shape": list(shape), "dtype": dtype}


def write_manifest(folder: Path) -> None:
    """The manifest of the files that lie in `folder`, signed by the tests."""
    signature = {
        "inputs": [tensor("x", (4, 64)), tensor("unused", (1,), "int64")],
        "outputs": [tensor("z", (4, 32)), tensor("s", (4,))],
    }
    parameters = [{"offset": 0, "nbytes": 64 * 32 * 4, "shape": [64, 32], "dtype": "float32"}]
    seal(folder, signature=signature, parameters=parameters)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Path:
    """A bundle with inputs `x` and `unused`, outputs `z` and `s`."""
    return write_bundle(tmp_path_factory.mktemp("bundle") / "small")


@pytest.fixture(scope="session")
def other_bundle(tmp_path_factory) -> Path:
    """The same model with twice the weights."""
    return write_bundle(tmp_path_factory.mktemp("bundle") / "other", scale=2.0)


@pytest.fixture(scope="session")
def variants(tmp_path_factory, faults) -> dict[str, Path]:
    """Libraries of the model of `bundle`: its own, another product, kernels of `faults`, another model."""
    folder = tmp_path_factory.mktemp("variants")
    found = {"own": write_library(folder / "own.so")}
    found["reordered"] = write_library(folder / "reordered.so", reordered=True)
    found["other model"] = write_library(folder / "other.so", inner=16)
    for name in ("fine", "slow", "crash"):
        found[name] = write_library(folder / f"{name}.so", relu=name, objects=[faults.with_name("faults.o")])
    return found


@pytest.fixture(scope="session")
def golden(bundle):
    """Arrays `x`, `unused`, `z`, `s`."""
    with np.load(bundle / "golden.npz") as arrays:
        return dict(arrays)


@pytest.fixture
def store_dir(tmp_path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def device(store_dir):
    """This machine, with a store of the test's own."""
    with connect_local(store_dir) as device:
        yield device


def local_agent(device: Device) -> LocalAgent:
    """The agent of a device that is a child of this process."""
    assert isinstance(device.agent, LocalAgent)
    return device.agent


def agent_pids(store_dir: Path) -> set[int]:
    """Processes of the agent that serves `store_dir`, executors included."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                folder = str((entry / "cwd").readlink())
            except OSError:
                continue
            if b"device_agent" in command and (
                str(store_dir).encode() in command or str(store_dir) in folder
            ):
                found.add(int(entry.name))
    return found


def await_none(store_dir: Path, seconds: float = 60.0) -> set[int]:
    """Waits until no such process is left; returns those that are."""
    until = time.monotonic() + seconds
    while (left := agent_pids(store_dir)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def resident_mb(pid: int) -> float:
    """Resident memory of a process, megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.fixture
def service(tmp_path):
    """An agent of a home of the test's own, started by its first ticket."""
    with Service(tmp_path / "home") as service:
        yield service
