"""What is replayed: models and operators on targets, and how deep, in three sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.replay import adapter

SETS = ("small", "full", "all")

# How far a kernel is followed: to its scheduled program, to what the code generators get, to its bytes.
PROGRAMS, CODE, BYTES = "programs", "code", "bytes"

# A board of every kind of program: vectors of 256 and 512 bits, NEON with and without dot products, RISC-V
# vectors, no vectors, a GPU.
KINDS = (
    "x86_64-v3",
    "x86_64-v4",
    "raspberry_pi_4",
    "jetson_orin_nano",
    "rv64gcv",
    f"jetson_orin_nano{adapter.GPU}",
)
_FOUR = ("x86_64-v3", "raspberry_pi_4", "rv64gcv", f"jetson_orin_nano{adapter.GPU}")
_WITH_DOTS = ("x86_64-v3", "raspberry_pi_5", "jetson_agx_orin")

_SMALL_OPERATORS = (
    "conv_3x3_512_7",
    "conv_1x1_24_144_56",
    "depthwise_3x3_s2_144_56",
    "matmul_13x100x37",
    "gemv_768x3072",
    "batched_12x4x64x512",
    "maxpool_3x3_s2_64_112",
    "softmax_3x197x197",
    "layer_norm_77x300",
    "arg_max_64x1001",
    "transpose_1000x333",
    "erf_128x3072",
)
_DRAWN = 16
_QUANTISED = ("quantised/gemm_uint8", "quantised/convolution_uint8", "quantised/dynamic_int8")


@dataclass(frozen=True)
class Unit:
    """One model on one target.

    Attributes:
        model: a name of `adapter.model_names`.
        target: a name of `adapter.target_names`.
        depth: how far its kernels are followed.
        drawn: random programs taken of every design space.
        bundle: whether its bundle is compiled too.
        dtype: "fp32" or "fp16".
        ranges: the range of each open dimension.
        threads: that programs may use; 0 takes all cores of the target.
    """

    model: str
    target: str
    depth: str = BYTES
    drawn: int = 0
    bundle: bool = False
    dtype: str = "fp32"
    ranges: tuple[tuple[str, tuple[int, int]], ...] = ()
    threads: int = 0

    @property
    def subject(self) -> str:
        """The model with its options."""
        options = [f"{name}={low}..{high}" for name, (low, high) in self.ranges]
        options += [self.dtype] if self.dtype != "fp32" else []
        options += [f"threads={self.threads}"] if self.threads else []
        return " ".join([self.model, *options])


def units(name: str) -> tuple[Unit, ...]:
    """What a set consists of, units of one subject beside each other.

    Raises:
        KeyError: no such set.
    """
    made = {"small": _small, "full": _full, "all": _all}[name]()
    # A model that two lists have on one target is followed as the first of them says.
    found = {(unit.subject, unit.target): unit for unit in reversed(list(made))}
    order = {subject: place for place, subject in enumerate(dict.fromkeys(key[0] for key in reversed(found)))}
    return tuple(sorted(found.values(), key=lambda unit: (order[unit.subject], unit.target)))


def _small() -> Iterator[Unit]:
    gpu = f"jetson_orin_nano{adapter.GPU}"
    for target in _FOUR:
        yield Unit("small/convnet", target, CODE, bundle=target in ("x86_64-v3", gpu))
    yield Unit("small/convnet", "raspberry_pi_4", dtype="fp16")
    yield Unit("small/encoder", "x86_64-v3", CODE, bundle=True, ranges=(("seq", (1, 64)),), threads=1)
    yield Unit("small/encoder", "raspberry_pi_5", CODE, ranges=(("seq", (1, 64)),))
    yield Unit("small/embedding", "rv64gc")
    yield from (Unit(model, target) for model in _QUANTISED for target in _WITH_DOTS[:2])
    for operator in _SMALL_OPERATORS:
        yield from (Unit(f"operator/{operator}", target, drawn=2) for target in _FOUR)
        # Enough programs that a change of a few decisions' programs is seen: see `compare.unversioned`.
        yield Unit(f"operator/{operator}", "x86_64-v4", CODE, drawn=_DRAWN, threads=1)


def _full() -> Iterator[Unit]:
    yield from _models(KINDS)
    yield from _others(adapter.target_names())
    operators = [name for name in adapter.model_names() if name.startswith("operator/")]
    for model in operators:
        yield from (Unit(model, target, BYTES if target in _FOUR else CODE, drawn=2) for target in KINDS)
        yield Unit(model, "x86_64-v4", CODE, drawn=2, threads=1)
    # Boards of the same kinds differ in figures alone: every second operator, every other one of the list.
    rest = [target for target in adapter.target_names() if target not in KINDS]
    for model in operators[::2]:
        yield from (Unit(model, target, PROGRAMS, drawn=1) for target in rest)


def _all() -> Iterator[Unit]:
    targets = adapter.target_names()
    yield from _models(targets)
    yield from _others(targets)
    for model in adapter.model_names():
        if model.startswith("operator/"):
            yield from (Unit(model, target, drawn=2) for target in targets)
            yield Unit(model, "x86_64-v4", CODE, drawn=2, threads=1)


def _models(targets: tuple[str, ...]) -> Iterator[Unit]:
    """The zoo, with a bundle of every model for one target or another."""
    zoo = [name for name in adapter.model_names() if name.startswith("zoo/")]
    for place, model in enumerate(zoo):
        for target in targets:
            yield Unit(model, target, CODE, bundle=target == KINDS[place % len(KINDS)])
    for model in ("zoo/mobilenetv2", "zoo/bert-tiny"):
        for target in ("raspberry_pi_5", f"jetson_agx_orin{adapter.GPU}"):
            yield Unit(model, target, CODE, dtype="fp16", bundle=model == "zoo/bert-tiny")


def _others(targets: tuple[str, ...]) -> Iterator[Unit]:
    """Small models everywhere, ranges and bytes where they are programs of their own."""
    for model in ("small/convnet", "small/embedding"):
        yield from (Unit(model, target, bundle=target in KINDS) for target in targets)
    yield from _small()
    processors = [target for target in targets if not target.endswith(adapter.GPU)]
    for target in processors:
        span = (("seq", (1, 512)),)
        yield Unit("small/encoder", target, CODE, bundle=target in KINDS, ranges=span, threads=1)
        yield Unit("small/encoder", target, CODE, ranges=span)
    for model in adapter.model_names():
        if model.startswith(("quantised/", "product/")):
            yield from (Unit(model, target, bundle=target == "raspberry_pi_5") for target in _WITH_DOTS)
            yield from (Unit(model, target) for target in ("rv64gcv", f"jetson_agx_orin{adapter.GPU}"))
