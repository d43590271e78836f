"""Boards as TOML files: `boards/NAME.toml` names a core of `cores/` and describes what is around it.

A user's own boards and cores lie in `$XDG_CONFIG_HOME/edgetlm/boards` and `cores`, in the same form.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from targets import bounds, nvidia
from targets.board import Board, MachineDescription
from targets.bounds import shown
from targets.hardware import GpuModel, HardwareModel, MemoryLevel

_MACHINES = {"aarch64": ("aarch64", "arm64"), "riscv64": ("riscv64",)}
_TRIPLES = {"aarch64": "aarch64-linux-gnu", "riscv64": "riscv64-unknown-linux-gnu"}
# What the agent reports of a machine that has the vectors of a core, and what it must report to get them.
_FEATURES = {"aarch64": ("fp", "asimd"), "riscv64": ("rv64imafdc",)}
_RVV = ("rv64imafdcv",)


class BoardFileError(ValueError):
    """A board file that cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class CoreLevel:
    """A memory level in cycles of its core.

    Attributes:
        name: "L1", "L2" or "L3".
        size_bytes: capacity that one core can use.
        bytes_per_cycle: sustained reads by one core.
        latency_cycles: load to use.
        ways: associativity.
    """

    name: str
    size_bytes: int
    bytes_per_cycle: float
    latency_cycles: float
    ways: int


@dataclass(frozen=True)
class Core:
    """A processor core, whatever clock it runs at; the fields are those of `HardwareModel` where named so.

    Attributes:
        architecture: "aarch64" or "riscv64".
        mcpu: LLVM's name of it.
        levels: innermost first.
        cpu_names: what the agent may report as `cpu_name`: "implementer:part" on Arm, the device tree's
            name of the core on RISC-V.
        mattr: LLVM features beyond those of `mcpu`.
        dot_product: "s8s8" with dot products of signed bytes.
        byte_matrices: whether there are products of matrices of signed bytes too.
        mabi: ABI where LLVM wants it named.
    """

    architecture: str
    mcpu: str
    vector_bits: int
    vector_registers: int
    fma_per_cycle: float
    fma_latency_cycles: float
    issue_width: float
    loads_per_cycle: float
    look_ahead: float
    levels: tuple[CoreLevel, ...]
    cpu_names: tuple[str, ...] = ()
    mattr: tuple[str, ...] = ()
    mabi: str = ""
    dot_product: str = ""
    half_arithmetic: bool = False
    byte_matrices: bool = False


@dataclass(frozen=True)
class BoardFile:
    """A kind of board around a core; the fields are those of `Board` where named so.

    Attributes:
        name: of the file, without suffix.
        core: its core.
        cores: how many.
        frequency_hz: sustained clock.
        memory_bytes: memory of the usual variant.
        memory_bytes_per_s: what one core reads from it.
        memory_latency_s: of it.
        parallel_launch_s: cost of starting and joining a parallel loop.
        device_trees: beginnings of the device tree's model on such boards; none for a generic board.
        cache_bytes: sizes that differ from the core's usual ones.
        gpu: name of a GPU in `targets.nvidia`, "" for none.
    """

    name: str
    title: str
    core: Core
    cores: int
    frequency_hz: float
    memory_bytes: int
    memory_bytes_per_s: float
    memory_latency_s: float
    parallel_launch_s: float
    device_trees: tuple[str, ...] = ()
    sensors: tuple[str, ...] = ()
    power_modes: tuple[str, ...] = ()
    payload: str = "python"
    cache_bytes: Mapping[str, int] = field(default_factory=dict)
    gpu: str = ""
    family: str = ""
    rails: tuple[str, ...] = ()
    boundary: str = ""

    def matches(self, description: MachineDescription) -> int:
        """How well this board fits a machine: 0 not at all, 2 generic by architecture, 4 by device tree."""
        if description.machine not in _MACHINES[self.core.architecture]:
            return 0
        if self.device_trees:
            model = description.device_tree_model.casefold()
            return 4 if any(model.startswith(name.casefold()) for name in self.device_trees) else 0
        if self.core.vector_bits > 32 and self.core.architecture == "riscv64":
            return 3 if has_rvv(description) else 0
        return 2

    def describe(self) -> MachineDescription:
        """The description that the agent of a typical board of this kind would report."""
        core = self.core
        vectors = core.architecture == "riscv64" and core.vector_bits > 32
        return MachineDescription(
            machine=_MACHINES[core.architecture][0],
            cpu_name=core.cpu_names[0] if core.cpu_names else self.title,
            cores=self.cores,
            features=_RVV if vectors else _FEATURES[core.architecture],
            cache_bytes={level.name: self._size(level) for level in core.levels},
            frequency_hz=self.frequency_hz,
            memory_bytes=self.memory_bytes,
            device_tree_model=self.device_trees[0] if self.device_trees else "",
        )

    def resolve(self, description: MachineDescription) -> Board:
        """The board for one machine: cores and clock as reported, on a generic board caches too."""
        core = self.core if self.device_trees else _known_core(description) or self.core
        frequency = description.frequency_hz or self.frequency_hz
        sizes = {} if self.device_trees else description.cache_bytes
        target: dict[str, object] = {
            "kind": "llvm",
            "mtriple": _TRIPLES[core.architecture],
            "mcpu": core.mcpu,
            "num-cores": description.cores,
        }
        if core.mattr:
            target["mattr"] = list(core.mattr)
        if core.mabi:
            target["mabi"] = core.mabi
        return Board(
            name=self.name,
            title=self._title(description.device_tree_model),
            architecture=core.architecture,
            tvm_target=target,
            hardware=self._hardware(core, description.cores, frequency, sizes),
            sensors=self.sensors,
            payload=self.payload,
            power_modes=self.power_modes,
            gpu=_gpu(self.gpu, self.name),
            family=self.family,
            rails=self.rails,
            boundary=self.boundary,
        )

    def _title(self, model: str) -> str:
        """The exact model ("... Model B Rev 1.4") where the device tree names more than the kind."""
        kinds = {name.casefold() for name in self.device_trees}
        return model if model and model.casefold() not in kinds else self.title

    def _size(self, level: CoreLevel) -> int:
        return self.cache_bytes.get(level.name, level.size_bytes)

    def _hardware(self, core: Core, cores: int, frequency: float, sizes: Mapping[str, int]) -> HardwareModel:
        levels = [
            MemoryLevel(
                level.name,
                sizes.get(level.name) or self._size(level),
                level.bytes_per_cycle * frequency,
                level.latency_cycles / frequency,
                ways=level.ways,
            )
            for level in core.levels
        ]
        levels.append(MemoryLevel("DRAM", 0, self.memory_bytes_per_s, self.memory_latency_s, ways=0))
        return HardwareModel(
            cores=cores,
            frequency_hz=frequency,
            vector_bits=core.vector_bits,
            vector_registers=core.vector_registers,
            fma_per_cycle=core.fma_per_cycle,
            fma_latency_cycles=core.fma_latency_cycles,
            peak_flops=2.0 * (core.vector_bits // 32) * core.fma_per_cycle * frequency,
            levels=tuple(levels),
            parallel_launch_s=self.parallel_launch_s,
            source="declared",
            issue_width=core.issue_width,
            loads_per_cycle=core.loads_per_cycle,
            look_ahead=core.look_ahead,
            dot_product=core.dot_product,
            # TBL and TBX are part of the architecture.
            byte_tables="neon" if core.architecture == "aarch64" else "",
            half_arithmetic=core.half_arithmetic,
            byte_matrices=core.byte_matrices,
        )


def has_rvv(description: MachineDescription) -> bool:
    """Whether a RISC-V machine reports the vectors of the ratified standard.

    The `isa` line reads like "rv64imafdcv_zicbom_..."; a draft of the standard shows as "xtheadvector" or
    as a plain v on XuanTie's C906 and C910, whose kernels report the standard's v by mistake.
    """
    words = [word for text in description.features for word in text.split("_")]
    base = words[0].removeprefix("rv64") if words else ""
    single = base.split("x")[0].split("z")[0].split("s")[0]
    draft = "xtheadvector" in words or description.cpu_name.startswith(("thead,c906", "thead,c910"))
    return ("v" in single or "v" in words[1:]) and not draft


def folders(kind: str) -> tuple[Path, ...]:
    """Where files of a kind ("boards" or "cores") lie: the user's folder before the product's."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return root / "edgetlm" / kind, Path(__file__).parent / kind


def board_files() -> dict[str, Path]:
    """Board files by name; a user's file of the same name replaces the product's."""
    return _files("boards")


def load_board(path: Path) -> BoardFile:
    """Read a board file.

    Raises:
        BoardFileError: it is no TOML, a field is missing, unknown or of the wrong type, or names a core
            or a GPU that there is not.
    """
    _check_name(path)
    content = _read(path)
    core = content.pop("core", None)
    if isinstance(core, str):
        files = _files("cores")
        if core not in files:
            raise BoardFileError(
                f"{path}: no core {shown(core)}: use one of {', '.join(files)}, or a table [core]"
            )
        content["core"] = load_core(files[core])
    elif isinstance(core, dict):
        content["core"] = _core(path, core)
    board: BoardFile = _checked(path, BoardFile, {"name": path.stem, **content})
    if board.payload not in ("python", "native"):
        raise BoardFileError(f"{path}: payload is {shown(board.payload)}: use python or native")
    _gpu(board.gpu, str(path))
    return board


def load_core(path: Path) -> Core:
    """Read a core file; see `load_board`."""
    return _core(path, _read(path))


def _core(path: Path, content: dict[str, Any]) -> Core:
    tables = content.pop("levels", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BoardFileError(f"{path}: levels = {shown(tables)} are no tables: write each as [[levels]]")
    if len(tables) > bounds.LIST_ITEMS:
        raise BoardFileError(f"{path}: {len(tables)} levels, at most {bounds.LIST_ITEMS} are taken")
    levels = tuple(_checked(path, CoreLevel, dict(table)) for table in tables)
    core: Core = _checked(path, Core, {**content, "levels": levels})
    if core.architecture not in _MACHINES:
        known = ", ".join(_MACHINES)
        raise BoardFileError(f"{path}: architecture is {shown(core.architecture)}: use one of {known}")
    if not levels or core.vector_bits < 32 or core.vector_bits % 32:
        raise BoardFileError(f"{path}: a core needs at least one of [[levels]], and vector_bits from 32 on")
    return core


def _known_core(description: MachineDescription) -> Core | None:
    """The core that reports itself by this name, unless the system does not know its vectors."""
    for path in _files("cores").values():
        core = load_core(path)
        if description.cpu_name in core.cpu_names:
            usable = core.architecture != "riscv64" or core.vector_bits == 32 or has_rvv(description)
            return core if usable else None
    return None


def _gpu(name: str, where: str) -> GpuModel | None:
    found = getattr(nvidia, name, None) if name.isupper() or name[:1].isupper() else None
    if name and not isinstance(found, GpuModel):
        raise BoardFileError(f"{where}: no GPU {shown(name)} in targets/nvidia.py")
    return found


def _files(kind: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in reversed(folders(kind)):
        if folder.is_dir():
            found.update({path.stem: path for path in sorted(folder.glob("*.toml"))})
    return dict(sorted(found.items()))


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(bounds.FILE_BYTES + 1)
        if len(data) > bounds.FILE_BYTES:
            raise ValueError(f"it has more than {bounds.FILE_BYTES} bytes")
        if max(map(len, data.split(b"\n"))) > bounds.LINE_BYTES:
            raise ValueError(f"it has a line of more than {bounds.LINE_BYTES} bytes")
        return tomllib.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise BoardFileError(f"{path} cannot be read: it is nested too deeply") from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BoardFileError(f"{path} cannot be read: {reason}") from error


def _check_name(path: Path) -> None:
    if not bounds.NAME.fullmatch(path.stem):
        raise BoardFileError(
            f"{shown(path.stem)} is no name of a board: use letters, digits, '.', '_' and '-'"
        )


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


_TYPES: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int and value > 0,
    "float": lambda value: _is_number(value) and value > 0,
    "tuple[str, ...]": lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value),
    "Mapping[str, int]": lambda value: (
        isinstance(value, dict) and all(type(v) is int for v in value.values())
    ),
    "Core": lambda value: isinstance(value, Core),
    "tuple[CoreLevel, ...]": lambda value: isinstance(value, tuple),
}


def _check_bounds(path: Path, name: str, value: Any) -> None:
    """Refuse numbers out of their range, and texts that are too long, hidden, or not of their form."""
    parts = list(value.values()) if isinstance(value, dict) else value
    parts = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    names = list(value) if isinstance(value, dict) else []
    if len(parts) > bounds.LIST_ITEMS:
        raise BoardFileError(f"{path}: {name} has {len(parts)} items, at most {bounds.LIST_ITEMS} are taken")
    low, high = bounds.RANGES.get(name, (-math.inf, math.inf))
    for part in [*parts, *names]:
        if _is_number(part) and not low <= part <= high:
            raise BoardFileError(f"{path}: {name} = {shown(part)} is not from {low:g} to {high:g}")
        if not isinstance(part, str):
            continue
        form = bounds.FORMS.get(name)
        if (
            len(part) > bounds.TEXT_CHARACTERS
            or not part.isprintable()
            or (form and not form.fullmatch(part))
        ):
            raise BoardFileError(f"{path}: {name} = {shown(part)} is no text that it can be")


def _checked(path: Path, kind: type[Any], content: dict[str, Any]) -> Any:
    """An instance of a dataclass, every field known and of its type."""
    fields = kind.__dataclass_fields__
    for name, value in content.items():
        if name not in fields:
            raise BoardFileError(f"{path}: unknown field {shown(name)}: there is {', '.join(fields)}")
        if not _TYPES[fields[name].type](value):
            raise BoardFileError(f"{path}: {name} = {shown(value)} is no {fields[name].type} above zero")
        _check_bounds(path, name, value)
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    try:
        return kind(**plain)
    except TypeError as error:
        missing = str(error).split("argument: ")[-1].split("arguments: ")[-1]
        raise BoardFileError(f"{path}: missing {missing}") from error
