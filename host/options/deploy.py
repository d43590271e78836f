"""The options of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from host.errors import UserError
from host.options.compile import ON_A_DEVICE, CompileOptions, check_bounds
from host.options.numeric_types import AUTO
from host.options.objective import OBJECTIVES
from host.options.setting import GROUPS, declared, setting_of

# A peer that is no engine: the same model compiled in single precision.
SINGLE_PRECISION = "tvm-fp32"


@dataclass(frozen=True)
class DeployOptions(CompileOptions):
    """The options of a deployment or a tuning, besides those of `CompileOptions`."""

    device: str = declared(
        "local",
        "The device's name; sdk devices lists them. deploy and tune take several, or a tag.",
        "device",
        commands=(*ON_A_DEVICE, "profile"),
        metavar="NAME[,NAME]|tag:TAG",
    )
    peers: tuple[str, ...] | None = declared(
        None,
        "Engine to measure beside ours (onnxruntime, litert, openvino, torch, tensorrt, ncnn; on a GPU "
        "tensorrt-fp16, tensorrt-int8, onnxruntime-cuda, onnxruntime-tensorrt; of language models llama.cpp, "
        "onnxruntime-genai, openvino-genai; or tvm-fp32: ours in single precision, with --dtype fp16 or "
        "bf16), or several with commas; the format's own if not given. May repeat.",
        "peers",
        commands=("deploy",),
        flag="peer",
        metavar="ENGINE",
        form="repeated",
    )
    peer_files: Mapping[str, Path] = declared(
        dict,
        "The same model for an engine that cannot read this one.",
        "peers",
        commands=("deploy",),
        flag="peer-file",
        metavar="ENGINE=PATH",
        form="peer_files",
        path=True,
    )
    peer_pythons: Mapping[str, Path] = declared(
        dict,
        "The interpreter of another environment, which has the engine of a language model.",
        "peers",
        commands=("deploy",),
        flag="peer-python",
        metavar="ENGINE=PATH",
        form="peer_files",
        path=True,
    )
    objective: str = declared(
        "latency",
        "latency, energy (joules of a run) or edp (their product).",
        "objective",
        commands=ON_A_DEVICE,
        choices=OBJECTIVES,
    )
    power_cap_w: float | None = declared(
        None,
        "Greatest mean gross watts at the sensor's boundary.",
        "objective",
        commands=ON_A_DEVICE,
        flag="power-cap",
        metavar="WATTS",
        most=1e6,
    )
    power_modes: tuple[str, ...] = declared(
        (),
        "Power modes to measure in as well; the device is left as it was.",
        "objective",
        commands=ON_A_DEVICE,
        flag="power-modes",
        metavar="all|NAME,...",
        form="names",
    )
    tolerance: float | None = declared(
        None,
        "With --dtype auto, the largest error of an output against the original runtime, relative to its "
        "largest value; 5e-2 with bf16 and 1e-2 with fp16 if not given.",
        "program",
        commands=("deploy",),
        metavar="ERROR",
        most=0.2,
    )
    bundle: Path | None = declared(  # noqa: RUF009 - makes a field
        None,
        "Directory or .zip of the bundle; edgetlm-out/NAME/bundle if not given.",
        commands=("deploy",),
        path=True,
    )
    min_speedup: float | None = declared(
        None,
        "Least time of the fastest peer over ours, by its lower 95% bound: 1.1.",
        "gates",
        commands=("deploy",),
        metavar="RATIO",
        most=1e9,
    )
    max_latency_ms: float | None = declared(
        None,
        "Greatest median time of a run.",
        "gates",
        commands=("deploy",),
        metavar="MS",
        most=1e12,
    )
    max_energy_mj: float | None = declared(
        None,
        "Greatest energy of a run.",
        "gates",
        commands=("deploy",),
        metavar="MJ",
        most=1e15,
    )
    max_error: float | None = declared(
        None,
        "Largest relative error of an output against the original runtime: 1e-4.",
        "gates",
        commands=("deploy",),
        metavar="ERROR",
        most=1e9,
    )
    max_bundle_bytes: int = declared(
        0,
        "Most bytes of what the device runs, library and parameters: 10M.",
        "gates",
        commands=("deploy",),
        flag="max-bundle",
        metavar="BYTES",
        form="bytes",
        most=1 << 62,
    )
    beside: tuple[str, ...] = declared(
        (), "Further devices of the kind that measure kernels; nothing is installed on them.", commands=()
    )
    plans: int = declared(
        0,
        "Plans of the whole model (algorithms, what shares a kernel) to measure beside the present one; the "
        "winner is remembered.",
        "tuning",
        commands=("deploy",),
        metavar="N",
        most=16,
    )
    rounds: int = declared(
        12,
        "Rounds of the paired comparison.",
        commands=(),
        most=10**4,
    )
    install: bool = declared(True, "Whether the bundle is installed and activated.", commands=())

    def check(self) -> None:
        """Refuse impossible options, before any work.

        Raises:
            UserError: says what to type instead.
        """
        super().check()
        if SINGLE_PRECISION in (self.peers or ()) and not self.half and self.dtype != AUTO:
            raise UserError(f"--peer {SINGLE_PRECISION} goes with --dtype fp16, bf16 or auto: leave it out")
        if self.tolerance is not None and self.dtype != AUTO:
            raise UserError("--tolerance goes with --dtype auto: give both, or leave it out")
        if self.tolerance is not None and not self.tolerance > 0.0:
            raise UserError(
                f"--tolerance {self.tolerance:g}: half precision always loses something: give a number above "
                "0, as in --tolerance 1e-2, or --dtype fp32"
            )
        for name in ("min_speedup", "max_latency_ms", "max_energy_mj", "max_error"):
            limit = getattr(self, name)
            if limit is not None and not 0.0 < limit < float("inf"):
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} {limit:g}: give a number above 0, or leave it out for no limit")
        if self.power_cap_w is not None and not 0.0 < self.power_cap_w < float("inf"):
            raise UserError(f"--power-cap {self.power_cap_w:g}: give watts above 0, as in --power-cap 10")
        check_bounds(self, DeployOptions)
        if self.plans < 0:
            raise UserError(f"--plans {self.plans}: give how many to measure, or 0 for none")
        if self.plans and self.ranged:
            raise UserError("--plans measures at one length: give one with --shape, not a range")
        if self.plans and self.processor == "gpu":
            raise UserError("--plans is for the CPU: leave it out, or use --processor cpu")

    def check_for_tuning(self) -> None:
        """Refuse options with which nothing can be tuned, before any work.

        Raises:
            UserError: says what to type instead.
        """
        self.check()
        if self.dtype == AUTO:
            raise UserError(
                "--dtype auto is for sdk deploy: tune for the type that it finds, fp32, fp16 or bf16"
            )
        if not self.tuned:
            raise UserError("a tuning needs an end: give --trials N or --budget 3m")
        if self.ranged:
            raise UserError("kernels are measured at one length: give one with --shape, not a range")

    @property
    def searches_types(self) -> bool:
        """See `CompileOptions`: a deployment has a device, and compares outputs on it."""
        return True

    @property
    def goal(self) -> str:
        """See `CompileOptions`."""
        return self.objective

    @property
    def needs_energy(self) -> bool:
        """Whether nothing can be chosen without joules or watts."""
        return self.objective != "latency" or self.power_cap_w is not None

    @property
    def compares_variants(self) -> bool:
        """Whether variants of the model are measured beside each other before one is taken."""
        return self.needs_energy or bool(self.power_modes) or self.tuned or bool(self.plans)


def text_of(name: str) -> str:
    """The help of a field of `DeployOptions`."""
    return next(setting_of(option).text for option in fields(DeployOptions) if option.name == name)


def settings_of(options: type[CompileOptions], command: str) -> tuple[Field[Any], ...]:
    """The fields that a command offers, in the order in which it lists them."""
    offered = [one for one in fields(options) if command in setting_of(one).commands]
    return tuple(sorted(offered, key=lambda one: GROUPS.index(setting_of(one).group)))
