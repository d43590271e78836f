"""One unit of a recording: a model on a target, its kernels and its bundle, as lines of hashes."""

from __future__ import annotations

import functools
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.replay import adapter
from tests.replay.codegen import watched
from tests.replay.subjects import BYTES, PROGRAMS, Unit
from tests.replay.texts import TextStore, digest, text_of

Line = dict[str, Any]

# In the order in which one follows from another: the first that differs is where a change begins.
STAGES = (
    "text",
    "target",
    "file",
    "imported",
    "parameters",
    "main",
    "lowered",
    "space",
    "decisions",
    "sentence",
    "scheduled",
    "drawn",
    "code",
    "cubin",
    "object",
    "library",
    "golden",
    "tasks",
    "manifest",
    "content",
)
# The subject of the lines that describe targets.
TARGET = "target"
# These have numbers in them that come out of another library on the processor of the one who records:
# weights of the models, constants folded of them, outputs of ONNX Runtime.
OF_THE_MACHINE = frozenset({"file", "parameters", "golden", "content"})


@dataclass(frozen=True)
class Places:
    """Where things lie.

    Attributes:
        texts: by hash.
        models: files of models that are slow to write.
        objects: what code generators made; None compiles everything.
    """

    texts: Path
    models: Path
    objects: Path | None


def record(unit: Unit, places: Places) -> list[Line]:
    """The lines of one unit: one of the model, one of every kernel; what fails is a line with the reason."""
    try:
        return _recorded(unit, places)
    except Exception as error:  # noqa: BLE001 - that a model cannot be compiled is a result like another
        return [failed_line(unit, f"{type(error).__name__}: {' '.join(str(error).split())}")]


def failed_line(unit: Unit, reason: str) -> Line:
    """The line of a unit that gave nothing."""
    return _line(unit, "", {"main": digest(reason.encode())}, failed=reason[:200])


def _recorded(unit: Unit, places: Places) -> list[Line]:
    store = TextStore(places.texts)
    path, model = _imported(unit.model, unit.ranges, places.models)
    ranges = dict(unit.ranges)
    lowered = adapter.lower(model, unit.target, unit.dtype, ranges, unit.threads, unit.drawn)
    lines = [_kernel_line(kernel, unit, places, store) for kernel in lowered.kernels]
    stages = {
        "target": store.keep(adapter.target_text(unit.target)),
        "file": digest(path.read_bytes()),
        "imported": store.keep(adapter.imported_text(model)),
        "parameters": _digest_of_arrays(lowered.parameters),
        "main": store.keep(lowered.main),
    }
    if unit.bundle:
        stages |= _bundle_stages(unit, path, places, store)
    return [_line(unit, "", stages), *lines]


def surface_lines(places: Places) -> list[Line]:
    """The lines of what others call or read, and of every target."""
    store = TextStore(places.texts)
    found: list[Line] = [
        {"subject": name, "target": "", "kernel": "", "stages": {"text": store.keep(text)}}
        for name, text in adapter.surfaces().items()
    ]
    for target in adapter.target_names():
        stages = {"target": store.keep(adapter.target_text(target))}
        found.append({"subject": TARGET, "target": target, "kernel": "", "stages": stages})
    return found


def _line(unit: Unit, kernel: str, stages: dict[str, str], **more: Any) -> Line:
    ordered = {stage: stages[stage] for stage in STAGES if stage in stages}
    return {"subject": unit.subject, "target": unit.target, "kernel": kernel, **more, "stages": ordered}


@functools.lru_cache(maxsize=1)
def _imported(name: str, ranges: tuple[Any, ...], models: Path) -> tuple[Path, Any]:
    """The file of a model and what the importer made of it; the next target wants the same."""
    depends = adapter.lasting(name)
    if depends:
        folder = models / digest(depends.encode())
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="model-"))
    path = adapter.write_model(name, folder)
    return path, adapter.load(path, dict(ranges))


def _kernel_line(kernel: adapter.Kernel, unit: Unit, places: Places, store: TextStore) -> Line:
    scheduled = text_of(kernel.function)
    stages = {
        "lowered": store.keep(f"{text_of(kernel.lowered)}# workload {kernel.workload}\n"),
        "space": store.keep(kernel.space),
        "decisions": store.keep(json.dumps(kernel.says, indent=1, sort_keys=True) + "\n"),
        "sentence": store.keep(kernel.sentence),
        "scheduled": store.keep(scheduled),
    }
    if kernel.drawn:
        stages["drawn"] = store.keep("\n".join(_drawn_text(program) for program in kernel.drawn))
    if unit.depth != PROGRAMS:
        stages |= _code_stages(kernel, unit, places, store)
    says = {key: value for key, value in kernel.says.items() if key not in ("weight", "flops")}
    more = {"failed": stages.pop("failed")} if "failed" in stages else {}
    # The adapter of an older commit names no version.
    if version := getattr(kernel, "version", 0):
        more |= {"version": version, "programs": _programs(kernel, scheduled)}
    return _line(unit, kernel.name, stages, says=says, **more)


def _programs(kernel: adapter.Kernel, scheduled: str) -> dict[str, str]:
    """Hashes of a space's programs by those of their decisions, whatever their estimates."""
    drawn = {
        _digest_of_decisions(program.says): digest(text_of(program.function).encode())
        for program in kernel.drawn
        if program.function is not None
    }
    return {_digest_of_decisions(kernel.says): digest(scheduled.encode()), **drawn}


def _digest_of_decisions(says: Mapping[str, Any]) -> str:
    return digest(json.dumps(says["decisions"], sort_keys=True).encode())


def _drawn_text(program: adapter.Program) -> str:
    function = "" if program.function is None else text_of(program.function)
    return f"{json.dumps(dict(program.says), indent=1, sort_keys=True)}\n{function}"


def _code_stages(kernel: adapter.Kernel, unit: Unit, places: Places, store: TextStore) -> dict[str, str]:
    build, made = unit.depth == BYTES, dict[str, bytes]()
    try:
        with watched(places.objects, build) as calls:
            made = adapter.compile_kernel(kernel.function, unit.target)
        code = store.keep(calls.text)
    except Exception as error:  # noqa: BLE001 - a kernel that does not compile is a result like another
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return {"code": store.keep(reason + "\n"), "failed": reason[:200]}
    return {"code": code, **({name: digest(content) for name, content in made.items()} if build else {})}


def _bundle_stages(unit: Unit, path: Path, places: Places, store: TextStore) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        folder = Path(name) / "bundle"
        with watched(places.objects, True):
            manifest = adapter.compile_bundle(
                path, unit.target, unit.dtype, dict(unit.ranges), unit.threads, folder
            )
        stages = {"content": manifest.pop("content_hash")}
        for stage, file in (("library", "lib.so"), ("golden", "golden.npz")):
            stages[stage] = digest((folder / file).read_bytes())
        if (folder / "tasks.json").is_file():
            stages["tasks"] = store.keep((folder / "tasks.json").read_text())
        # Files have stages of their own; the file's hash and its versions are not what is asked here.
        manifest["files"] = sorted(manifest["files"])
        manifest["origin"]["content_hash"] = manifest["versions"] = None
        stages["manifest"] = store.keep(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return stages


def _digest_of_arrays(arrays: tuple[Any, ...]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        whole = np.ascontiguousarray(array)
        found.update(f"{whole.dtype}{whole.shape}".encode())
        found.update(whole.reshape(-1).view(np.uint8).data)
    return digest(found.digest())
