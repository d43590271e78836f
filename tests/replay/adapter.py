"""The only module of the process replay that knows the product's names: models in, programs and bytes out.

A commit that moves or renames something of the product changes this file with it. The recording of an older
commit runs that commit's own adapter under the recorder of today, so the functions here keep their
signatures; `INTERFACE` is raised where that cannot be, in a commit that changes nothing else.
"""

from __future__ import annotations

import functools
import inspect
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tvm

from tests.replay.command_texts import argparse_text, typer_texts

INTERFACE = 1

PACKAGES = ("sdk", "research", "host", "targets", "device_agent", "tests")
GPU = "/gpu"
SEED = 0

# An open dimension and its range, or nothing where every dimension is a number.
Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Program:
    """One program of a design space that nobody chose: drawn at random.

    Attributes:
        says: its decisions and its estimate.
        function: it, scheduled; None where the rule refuses the decisions.
    """

    says: Mapping[str, Any]
    function: tvm.tirx.PrimFunc | None


@dataclass(frozen=True, eq=False)
class Kernel:
    """A task of a model with the program that is constructed for it.

    Attributes:
        name: of the function in the model.
        workload: hash of the task.
        lowered: the unscheduled function; with an open dimension, over the length.
        space: the open decisions with their choices, "" where there is no design space.
        says: who made the program, by which rule, the decisions, the estimate.
        sentence: the program in words of the tensor language, or why there are none.
        function: the scheduled program.
        drawn: further programs of the same space.
        version: of the rule; 0 where no rule made the program alone.
    """

    name: str
    workload: str
    lowered: tvm.tirx.PrimFunc
    space: str
    says: Mapping[str, Any]
    sentence: str
    function: tvm.tirx.PrimFunc
    drawn: tuple[Program, ...] = ()
    version: int = 0


@dataclass(frozen=True, eq=False)
class Lowered:
    """A model lowered for a target.

    Attributes:
        main: its calls; weights are named in it and not shown.
        parameters: the folded weights, in order.
        kernels: its tasks, made one by one as they are asked for.
    """

    main: str
    parameters: tuple[Any, ...]
    kernels: Iterator[Kernel]


# ---------------------------------------------------------------------------------------------- models


def model_names() -> tuple[str, ...]:
    """Every model that can be written: of the zoo, single operators, small and quantised ones."""
    return tuple(_writers())


def write_model(name: str, folder: Path) -> Path:
    """Write a model's file into a folder, which may hold it already."""
    return _writers()[name](folder)


def lasting(name: str) -> str:
    """What a file that is slow to write depends on, so that it may be kept; "" for the others."""
    if not name.startswith("zoo/"):
        return ""
    from research import models

    files = sorted(Path(path) for folder in models.__path__ for path in Path(folder).glob("*.py"))
    return "".join(path.read_text() for path in files)


@functools.cache
def _writers() -> dict[str, Callable[[Path], Path]]:
    from benchmarks.dot_products import models as dot_products
    from benchmarks.operators.configurations import OPERATORS
    from benchmarks.operators.others import OTHERS
    from research.models.zoo import ZOO
    from tests.integration import small_models

    def operator(entry: Any, folder: Path) -> Path:
        import onnx

        from benchmarks.operators.subject import make_model

        path = folder / f"{entry.name}.onnx"
        onnx.save(make_model(entry, images_last=entry.image), str(path))
        return path

    def product(entry: Any, folder: Path) -> Path:
        path = folder / f"{entry.name}.onnx"
        dot_products.integer_model(entry, path, library=False)
        return path

    def zoo(name: str, folder: Path) -> Path:
        from research.models.export import export

        return export(name, folder, "onnx")

    def quantised(make: str, dtype: str, folder: Path) -> Path:
        from tests.unit.lowering.numeric_types import quantized_models

        getattr(quantized_models, make)(folder, dtype)
        return folder / "quantised.onnx"

    writers: dict[str, Callable[[Path], Path]] = {
        "small/convnet": lambda folder: small_models.convnet(folder / "convnet.onnx"),
        "small/embedding": lambda folder: small_models.embedding(folder / "embedding.onnx"),
        "small/encoder": lambda folder: small_models.encoder(folder / "encoder.onnx"),
    }
    for make, dtype in (("gemm", "uint8"), ("gemm", "int8"), ("convolution", "uint8"), ("dynamic", "int8")):
        writers[f"quantised/{make}_{dtype}"] = functools.partial(quantised, make, dtype)
    writers |= {f"product/{o.name}": functools.partial(product, o) for o in dot_products.OPERATORS}
    writers |= {f"operator/{o.name}": functools.partial(operator, o) for o in (*OPERATORS, *OTHERS)}
    writers |= {f"zoo/{name}": functools.partial(zoo, name) for name in ZOO}
    return writers


def load(path: Path, ranges: Ranges) -> Any:
    """Import a model file in this process; with a range, read it for all of its lengths."""
    if ranges:
        from host.compile.ranged_model import read_ranged
        from host.options import CompileOptions
        from host.progress import Silence, StageClock

        shapes = {name: (span,) for name, span in ranges.items()}
        return read_ranged(CompileOptions(path, shapes=shapes, seed=SEED), StageClock(Silence()))
    from host.importers import load_here

    return load_here(path, seed=SEED, golden_cases=1)


def imported_text(model: Any) -> str:
    """What the importer made of a file, weights not shown; "" where the module is not of one length."""
    if model.module is None:
        return str(model.reason)
    text: str = model.module["main"].script(show_meta=False)
    return text


# --------------------------------------------------------------------------------------------- targets


def target_names() -> tuple[str, ...]:
    """Everything that can be compiled for without having it: boards, and their GPUs as "BOARD/gpu"."""
    from host.compile.processor import why_no_gpu
    from targets import declared

    names = tuple(declared())
    return names + tuple(f"{name}{GPU}" for name in names if not why_no_gpu(_profile(name)))


@functools.cache
def _profile(target: str, threads: int = 0) -> Any:
    from host.compile.device_profile import profile_for
    from host.compile.processor import gpu_profile
    from targets import declared

    name = target.removesuffix(GPU)
    profile = profile_for(declared()[name], name, threads)
    return gpu_profile(profile) if target.endswith(GPU) else profile


def target_text(target: str) -> str:
    """The figures that programs for a target are made by, and TVM's target."""
    from host.build import target_for

    profile = _profile(target)
    figures = json.dumps(asdict(profile), indent=1, sort_keys=True, default=str)
    return f"{figures}\n{target_for(profile.board)}\n"


# -------------------------------------------------------------------------------------------- programs


def lower(model: Any, target: str, dtype: str, ranges: Ranges, threads: int = 0, drawn: int = 0) -> Lowered:
    """Lower a model for a target and construct its programs.

    Args:
        model: of `load`.
        target: of `target_names`.
        dtype: "fp32" or "fp16".
        ranges: as for `load`.
        threads: that a program may use; 0 takes all cores.
        drawn: random programs to take of every design space beside the chosen one.
    """
    from host.compile.static_model import lower_model, propose
    from host.options.numeric_types import half_of
    from host.progress import Silence, StageClock

    profile = _profile(target, threads)
    if ranges:
        return _lower_over(model, profile)
    clock = StageClock(Silence())
    found = lower_model(model, profile, clock, half_of(dtype))
    plan = propose(found, profile, SEED, clock)
    kernels = (_kernel(task, plan, profile, drawn) for task in found.tasks)
    return Lowered(found.module["main"].script(show_meta=False), found.parameters, kernels)


def _kernel(task: Any, plan: Any, profile: Any, drawn: int) -> Kernel:
    from host.compile.static_model import defects_as
    from host.errors import ScheduleError
    from host.schedules import scheduled_function

    key, says = task.workload_hash, {"weight": task.weight, "flops": task.flops}
    candidate, reason = plan.chosen.get(key), plan.reasons.get(key, "")
    if candidate is not None:
        space = plan.spaces[key]
        try:
            with defects_as(ScheduleError, task.name):
                function = scheduled_function(space.apply(candidate))
            return Kernel(
                name=task.name,
                workload=key,
                lowered=task.function,
                space="".join(f"{decision.name}: {list(decision.choices)}\n" for decision in space.decisions),
                says={**says, "source": candidate.proposer, **_says(candidate)},
                sentence=_sentence(space, dict(candidate.decisions)),
                function=function,
                drawn=tuple(_random_order(space, task, drawn)),
                version=candidate.space_version,
            )
        except ScheduleError as error:
            reason = " ".join(str(error).split())
    says |= {"source": "default", "reason": reason}
    return Kernel(task.name, key, task.function, "", says, "", _default(task, profile))


def _default(task: Any, profile: Any) -> tvm.tirx.PrimFunc:
    """The program of a task that nobody has one for."""
    from host.build import default_schedule
    from host.build.cuda.default_schedule import default_schedule_gpu

    gpu = profile.hardware.gpu is not None
    return default_schedule_gpu(task.function, task.name) if gpu else default_schedule(task.function)


def _says(candidate: Any) -> dict[str, Any]:
    # Twelve digits: the last ones of a logarithm are the C library's.
    return {
        "rule": candidate.rule,
        "decisions": dict(candidate.decisions),
        "estimate_us": float(f"{candidate.estimate_s * 1e6:.12g}"),
    }


def _sentence(space: Any, values: dict[str, Any]) -> str:
    from host.errors import TlmError
    from host.tlm.language.sentence import encode, sentence_of

    try:
        return " ".join(encode(sentence_of(space, values)))
    except TlmError as error:
        return str(error)


def _random_order(space: Any, task: Any, count: int) -> Iterator[Program]:
    from host.errors import ScheduleError
    from host.schedules import scheduled_function

    generator = random.Random(f"{task.workload_hash}/{SEED}")
    for _ in range(count):
        values = space.sample(generator)
        candidate = space.candidate(values, "random", space.estimate_s(values))
        try:
            yield Program(_says(candidate), scheduled_function(space.apply(candidate)))
        except ScheduleError as error:
            yield Program({**_says(candidate), "reason": " ".join(str(error).split())}, None)


def _lower_over(model: Any, profile: Any) -> Lowered:
    """A model over a range of lengths; what is unscheduled is over the length too."""
    from tvm import tirx

    from host.compile.static_model import defects_as
    from host.dynamic.kernels import default_over, kernel_over
    from host.dynamic.model import lower_over
    from host.errors import ScheduleError, one_line
    from host.lowering.tasks import workload_hash

    symbolic = lower_over(model.source, model.dimension, profile.board, lambda done, total: None)

    def kernels() -> Iterator[Kernel]:
        for name, template in symbolic.functions.items():
            plain = template.over(tirx.Var("length", "int32"))
            try:
                with defects_as(ScheduleError, name):
                    made = kernel_over(name, template, symbolic.dimension, profile, SEED)
            except ScheduleError as error:
                made = default_over(name, template, one_line(error))
            says = {
                "weight": symbolic.weights[name],
                "source": made.source,
                "rule": made.rule,
                "decisions": dict(made.decisions or {}),
                "programs": made.programs,
                "reason": made.reason,
            }
            workload = workload_hash(template.at(symbolic.dimension.high))
            yield Kernel(name, workload, plain, "", says, "", made.function)

    plain = {name: t.over(tirx.Var("length", "int32")) for name, t in symbolic.functions.items()}
    main = symbolic.module(plain)["main"].script(show_meta=False)
    return Lowered(main, symbolic.parameters, kernels())


# ----------------------------------------------------------------------------------------------- bytes


def compile_kernel(function: tvm.tirx.PrimFunc, target: str) -> dict[str, bytes]:
    """A scheduled function as a relocatable object; for a GPU, as a cubin with its host's object."""
    from host.build import compile_cuda, cuda_major, target_for
    from host.build.kernel import compile_function

    profile = _profile(target)
    if profile.hardware.gpu is None:
        return {"object": compile_function(function, "kernel", target_for(profile.board))}
    major = cuda_major(profile.software)
    made = compile_cuda(function, "kernel", target_for(profile.board), cuda_major=major)
    return {"cubin": made.cubin.content, "object": made.host}


def compile_bundle(
    path: Path, target: str, dtype: str, ranges: Ranges, threads: int, output: Path
) -> dict[str, Any]:
    """Compile a model file as `sdk compile` does; returns the manifest of the bundle at `output`."""
    import sdk

    manifest = sdk.compile(
        path,
        output=output,
        target=target.removesuffix(GPU),
        backend="tvm",
        processor="gpu" if target.endswith(GPU) else "cpu",
        dtype=dtype,
        threads=threads,
        shapes={name: (span,) for name, span in ranges.items()},
        seed=SEED,
        command="process replay",
    )
    return {**json.loads(manifest.model_dump_json(by_alias=True)), "content_hash": manifest.content_hash}


def surfaces() -> dict[str, str]:
    """What others call or read, as text: command lines, functions, fields of files."""
    import device_agent.__main__ as agent
    import sdk
    from host.manifest import Manifest
    from host.records import Record, RecordOrigin
    from sdk.cli.main import build_app

    found = {f"command {name}": text for name, text in typer_texts(build_app(), "sdk")}
    found["command device-agent"] = argparse_text(agent._parser())
    for name in sdk.__all__:
        if inspect.isfunction(getattr(sdk, name)):
            found[f"function sdk.{name}"] = f"{inspect.signature(getattr(sdk, name))}\n"
    found["names of sdk"] = "".join(f"{name}\n" for name in sdk.__all__)
    found["fields of a manifest"] = json.dumps(Manifest.model_json_schema(), indent=1, sort_keys=True) + "\n"
    for name, kind in (("a record", Record), ("a record's origin", RecordOrigin)):
        found[f"fields of {name}"] = "".join(f"{field.name}: {field.type}\n" for field in fields(kind))
    return found
