"""Small made-up results: figures with known values, so that what is computed from them can be checked."""

from __future__ import annotations

from pathlib import Path

from host.compare.entrants import EntrantResult
from host.deploy import Choice, DeployResult, TaskOutcome, Verification
from host.model import Energy, Measurement, Signature, TensorSpec
from targets import MachineDescription

NO_SENSOR = Energy("unavailable", None, None, "no RAPL in /sys/class/powercap")


def measurement(milliseconds: float, n: int = 20, energy: Energy = NO_SENSOR) -> Measurement:
    """Times spread evenly by 10% around a median."""
    times = tuple(milliseconds * 1e-3 * (0.95 + 0.1 * index / (n - 1)) for index in range(n))
    return Measurement(times, energy, {"load": 0.5}, {"load": 0.7}, 1)


def task(name: str, source: str, weight: int, latency_us: float | None) -> TaskOutcome:
    """One task of a model."""
    return TaskOutcome(name, f"hash-{name}", weight, source, "conv2d", flops=1e6, latency_us=latency_us)


def result(energy: Energy = NO_SENSOR) -> DeployResult:
    """A deployment in which ours takes 2 ms and ONNX Runtime 3 ms."""
    passed = Verification(2e-6, 1e-3, True)
    return DeployResult(
        name="net",
        bundle=Path("out/net/bundle"),
        device="local",
        machine=MachineDescription("x86_64", "Test processor", 2, (), {}, 3e9, 1 << 30),
        threads=1,
        signature=Signature(
            (TensorSpec("image", (1, 3, 8, 8), "float32"),), (TensorSpec("</script><b>", (1, 4), "float32"),)
        ),
        choice=Choice("tvm", "tvm is faster: onnxruntime / tvm = 1.50", (1.5, 1.45, 1.55)),
        contenders={
            "tvm": EntrantResult("tvm", measurement(2.0, energy=energy), passed),
            "onnxruntime": EntrantResult("onnxruntime", measurement(3.0), passed),
            "litert": EntrantResult("litert", None, None, "does not read onnx files"),
        },
        ratios={"onnxruntime": (1.5, 1.45, 1.55)},
        tasks=(task("conv", "gensor", 3, 500.0), task("sort </script>", "default", 1, 500.0)),
        fallback="",
        seconds={"import": 1.0, "build": 2.0, "total": 4.0},
        versions={"edgetlm": "0.1.0"},
        command="sdk deploy net.onnx",
        installed=True,
    )
