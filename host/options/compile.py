"""The options of a compilation and of tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import is_name
from device_agent.contract.text import printable
from host.errors import UserError
from host.options.backends import BACKENDS
from host.options.engine import check_engine
from host.options.numeric_types import DTYPES, check_type, half_of
from host.options.setting import EVERYWHERE, Setting, declared, key_of, setting_of

QUANTISATIONS = ("", "int8", "int4")
# Weights that share a scale, those of the importer of language models; the first where none is asked for.
GROUPS = (32, 64, 128)
PROCESSORS = ("auto", "cpu", "gpu")
# Who proposes what is measured: all together, or one of them alone. Installed packages add further names.
METHODS = ("auto", "gensor", "tlm", "random")

# A dimension of a shape: its size, or the least and greatest size that are to be served.
Size = int | tuple[int, int]
# An element of an input that is fixed.
Number = bool | int | float

# Seconds of three years: beyond that nothing waits.
_LONGEST_S = 1e8

ON_A_DEVICE = ("tune", "deploy")
# Of `sdk records`, what decides which functions a model has.
_OF_FUNCTIONS = (*EVERYWHERE, "records")


def check_bounds(options: CompileOptions, kind: type[CompileOptions]) -> None:
    """Refuse a number beyond its bounds; after the checks that have more to say.

    Args:
        options: whose numbers are checked.
        kind: of whose fields.

    Raises:
        UserError: names the flag and the bounds.
    """
    for option in fields(kind):
        setting, value = setting_of(option), getattr(options, option.name)
        if setting.most is not None and value is not None and not setting.least <= value <= setting.most:
            bounds = f"{setting.least:.12g} to {setting.most:.12g}"
            raise UserError(f"--{key_of(option)} {printable(value, 40)}: give {bounds}")


@dataclass(frozen=True)
class CompileOptions:
    """How a model is made into a bundle; `setting_of` has the text of each field."""

    model: Path = field(
        default=Path(), metadata={"setting": Setting("The model file.", commands=(), path=True)}
    )
    backend: str = declared(
        "auto",
        "auto, tvm, onnxruntime, litert, or an engine of the board's system: tensorrt, tensorrt-fp16, "
        "tensorrt-int8, onnxruntime-cuda, onnxruntime-tensorrt.",
        "program",
        commands=("compile", "deploy"),
        choices=("auto", *BACKENDS),
    )
    processor: str = declared(
        "auto",
        "cpu, gpu (the board's CUDA GPU) or auto: the faster one where both can run it; the CPU where one is "
        "tuned or compiled for.",
        "program",
        commands=_OF_FUNCTIONS,
        choices=PROCESSORS,
    )
    dtype: str = declared(
        "fp32",
        "fp32; fp16: half the memory, checked with a tolerance of 1e-2; or bf16: half the memory and "
        "products at up to twice the speed on x86 with AVX-512 BF16, checked with 5e-2. auto: for each layer "
        "fp32 or the half that the CPU computes fast in, by the estimate, within --tolerance (sdk deploy).",
        "program",
        commands=_OF_FUNCTIONS,
        choices=DTYPES,
    )
    quantize: str = declared(
        "",
        "int8 or int4: weights of a language model, with a scale for each group of them. int8 of an ONNX "
        "model: weights and activations, with --calibration.",
        "program",
        commands=_OF_FUNCTIONS,
        choices=QUANTISATIONS,
    )
    group: int = declared(
        32,
        "Weights of a language model that share a scale with --quantize: 32, 64 or 128. More take less "
        "memory.",
        "program",
        commands=_OF_FUNCTIONS,
        metavar="WEIGHTS",
        most=1 << 20,
    )
    asymmetric: bool = declared(
        False,
        "Give each group of weights a zero point with --quantize int4: more exact, and a byte more a group.",
        "program",
        commands=_OF_FUNCTIONS,
    )
    calibration: Path | None = declared(  # noqa: RUF009 - makes a field
        None,
        "Samples for --quantize int8: a .npz file with an array for each input, samples along its first "
        "axis, or a folder with a file for each sample. For --quantize int4 of a language model: a text in "
        "UTF-8, whose activations say which errors weigh most.",
        commands=_OF_FUNCTIONS,
        metavar="DIR|FILE",
        path=True,
    )
    quantize_error: float = declared(
        0.1,
        "Largest root mean square error of the outputs of a model quantised with --calibration, relative to "
        "those in floats: layers that lose most stay in floats until it holds.",
        "program",
        commands=_OF_FUNCTIONS,
        metavar="ERROR",
        most=1e6,
    )
    context_tokens: int | None = declared(
        None,
        "Tokens that a language model keeps, a multiple of 16; 2048, or as many as it has positions, if not "
        "given.",
        "program",
        commands=_OF_FUNCTIONS,
        flag="context",
        metavar="TOKENS",
        most=1 << 30,
    )
    cache: str = declared(
        "",
        "int8: keep keys and values of a language model as bytes, in half the memory, on CPUs. If not given: "
        "in half precision, or in fp32 where the weights are.",
        "program",
        commands=_OF_FUNCTIONS,
        choices=("", "int8"),
    )
    sequences: int = declared(
        1,
        "Texts that a language model continues at once, each with a context of its own; at most 4.",
        "program",
        commands=_OF_FUNCTIONS,
        metavar="N",
        most=1 << 20,
    )
    text: Path | None = declared(  # noqa: RUF009 - makes a field
        None,
        "Text in UTF-8 on which a language model is judged on the device: perplexity, and divergence from "
        "float32.",
        "program",
        commands=("deploy",),
        metavar="FILE",
        path=True,
    )
    memory_cap_bytes: int = declared(
        0,
        "Most memory of the compiled model on its device, weights included: 64M, 1G.",
        "program",
        commands=("compile", "deploy"),
        flag="memory-cap",
        metavar="BYTES",
        form="bytes",
        most=1 << 62,
    )
    cuda: str = declared(
        "",
        "CUDA version of the board; the usual JetPack's if not given.",
        "program",
        commands=("compile",),
        metavar="11",
    )
    trials: int = declared(
        0,
        "Kernels to measure in all; 0 measures only the finished model, unless there is a budget.",
        "tuning",
        commands=ON_A_DEVICE,
        most=10**9,
    )
    budget_s: float = declared(
        0.0,
        "Time for measuring kernels and learning from them: 90s, 3m, 1h. For sdk tune, that of the whole "
        "command.",
        "tuning",
        commands=ON_A_DEVICE,
        flag="budget",
        metavar="3m",
        form="duration",
        most=_LONGEST_S,
    )
    train: bool = declared(
        True, "Whether the language model learns from the measurements.", "tuning", commands=ON_A_DEVICE
    )
    proposer: object = declared(
        "",
        "Proposer of an installed package: it makes the first programs, or proposes beside the others where "
        "kernels are measured.",
        "tuning",
        metavar="NAME",
        form="text",
    )
    method: str = declared(
        "auto",
        "Who proposes the programs that are measured: auto (all together), or alone gensor, tlm, random or a "
        "proposer of an installed package, such as metaschedule.",
        "tuning",
        commands=ON_A_DEVICE,
        metavar="NAME",
    )
    wait_s: float = declared(
        0.0,
        "Time to wait for a device that another host has.",
        "tuning",
        commands=ON_A_DEVICE,
        flag="wait",
        metavar="10m",
        form="duration",
        most=_LONGEST_S,
    )
    reconnect_s: float = declared(
        300.0,
        "Time to wait for a device that goes away while kernels are measured.",
        "tuning",
        commands=ON_A_DEVICE,
        flag="reconnect",
        metavar="5m",
        form="duration",
        most=_LONGEST_S,
    )
    engine: str = declared(
        "local",
        "Where programs are built and from where boards are reached: local, ray (hosts of this machine), or "
        "ray://HOST:PORT of a cluster's head, whose hosts know the boards by their names.",
        "tuning",
        commands=ON_A_DEVICE,
        metavar="local|ray|ray://HEAD",
    )
    records: str = declared(
        "",
        "Store of records: a SQLite file or any SQLAlchemy URL; the user's own if not given.",
        "tuning",
        commands=(*ON_A_DEVICE, "records"),
        metavar="URL",
        environment="EDGETLM_RECORDS",
        path=True,
    )
    threads: int = declared(
        0,
        "Threads for the model; 0 takes all cores of the device.",
        commands=(*_OF_FUNCTIONS, "profile"),
        most=4096,
    )
    shapes: Mapping[str, tuple[Size, ...]] = declared(
        dict,
        "Shape of an input with open dimensions, or the size of a dimension by its name; "
        "LOW..HIGH serves a range (seq=1..512). May repeat.",
        commands=(*_OF_FUNCTIONS, "profile"),
        flag="shape",
        metavar="NAME=1,128",
        form="shapes",
    )
    values: Mapping[str, tuple[Number, ...]] = declared(
        dict,
        "Fixes an input of an ONNX model to these numbers; one number fills all of it. The compiled model no "
        "longer has this input. May repeat.",
        commands=(*_OF_FUNCTIONS, "profile"),
        flag="value",
        metavar="INPUT=640,480",
        form="values",
    )
    lengths: tuple[int, ...] = declared(
        (),
        "Lengths of the range to measure at.",
        commands=("deploy", "profile"),
        metavar="16,128",
        form="lengths",
    )
    seed: int = declared(
        0,
        "Seed of every random choice.",
        commands=(*EVERYWHERE, "profile"),
        most=(1 << 63) - 1,
    )
    name: str = declared("", "Name of the model on the device; the file's name if not given.")
    command: str = declared("", "The command line, kept in the bundle and the report.", commands=())

    @property
    def half(self) -> str:
        """The type of half precision in which tensors lie in memory, "" for single precision."""
        return half_of(self.dtype)

    @property
    def ranged(self) -> bool:
        """Whether a range of lengths was asked for."""
        return any(isinstance(size, tuple) for shape in self.shapes.values() for size in shape)

    @property
    def goal(self) -> str:
        """What a model is compiled for, one of `OBJECTIVES`; for no device there is no other than latency."""
        return "latency"

    @property
    def weighs_energy(self) -> bool:
        """Whether programs of heavy kernels are measured in energy too."""
        return self.goal != "latency"

    @property
    def searches_types(self) -> bool:
        """Whether the command can search for the types of layers (`--dtype auto`): it has to run models."""
        return False

    @property
    def title(self) -> str:
        """The name of files that are made of the model: the user's name for it, else that of its file."""
        return self.name or (self.model.name if self.model.is_dir() else self.model.stem)

    @property
    def tuned(self) -> bool:
        """Whether kernels are measured: a number of trials or a time budget is given."""
        return bool(self.trials or self.budget_s)

    def fixed_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes without a range."""
        return {
            name: tuple(size for size in shape if isinstance(size, int))
            for name, shape in self.shapes.items()
            if all(isinstance(size, int) for size in shape)
        }

    def check(self) -> None:
        """Refuse what cannot be, before any work.

        Raises:
            UserError: says what to type instead.
        """
        for option in fields(self):
            choices, value = setting_of(option).choices, getattr(self, option.name)
            if choices and value not in choices:
                known = ", ".join(one for one in choices if one)
                raise UserError(f"no {option.name} {value!r}: use {known}")
        if self.name and not is_name(self.name):
            raise UserError(
                f"--name {printable(self.name)}: use letters, digits, dot, dash and underscore, at most"
                f" {LIMITS.bundle.name_characters} characters"
            )
        check_engine(self.engine)
        check_type(self.dtype, self.processor, self.ranged, self.searches_types)
        if self.calibration is not None and not self.quantize:
            raise UserError("--calibration goes with --quantize int8 or int4: give both, or leave it out")
        if self.group not in GROUPS:
            raise UserError(f"--group {self.group}: give {', '.join(map(str, GROUPS))}")
        if self.group != GROUPS[0] and not self.quantize:
            raise UserError(f"--group {self.group} goes with --quantize int8 or int4: give both")
        if self.asymmetric and self.quantize != "int4":
            raise UserError("--asymmetric goes with --quantize int4: give both, or leave it out")
        if not 0.0 < self.quantize_error < float("inf"):
            raise UserError(
                f"--quantize-error {self.quantize_error:g}: give a number above 0, as in --quantize-error 0.1"
            )
        if self.memory_cap_bytes and self.backend not in ("auto", "tvm"):
            raise UserError(
                f"--memory-cap: what {self.backend} takes is not known before it runs: use --backend tvm"
            )
        if self.memory_cap_bytes and self.ranged:
            raise UserError("--memory-cap does not go with a range of lengths: leave one of them out")
        if self.context_tokens is not None and self.context_tokens < 1:
            raise UserError(f"--context {self.context_tokens}: give a number of tokens, a multiple of 16")
        if not 1 <= self.sequences <= LIMITS.bundle.sequences:
            raise UserError(f"--sequences {self.sequences}: give 1 to {LIMITS.bundle.sequences}")
        if self.threads < 0:
            raise UserError(f"--threads {self.threads}: give a positive number, or 0 for all cores")
        if self.trials < 0:
            raise UserError(f"--trials {self.trials}: give a number of measurements, or 0 for none")
        if self.ranged and self.tuned:
            asked = f"--trials {self.trials}" if self.trials else "--budget"
            raise UserError(
                f"{asked}: kernels are measured at one length, and --shape gives a range: "
                f"leave {asked.split()[0]} out, or give one length"
            )
        if self.ranged and self.proposer != "":
            raise UserError("--proposer does not go with a range of lengths: leave one of them out")
        if self.method != "auto" and self.proposer != "":
            raise UserError("--method names who proposes alone, --proposer who does beside others: give one")
        if self.method != "auto" and not self.tuned:
            raise UserError(
                f"--method {printable(self.method, 80)} measures kernels: give --trials N or --budget 3m"
            )
        check_bounds(self, CompileOptions)
