"""A recording: every unit of a set in processes of its own, gathered in one file of JSON lines."""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import metadata
from itertools import groupby
from pathlib import Path

from tests.replay import adapter
from tests.replay.subjects import Unit, units
from tests.replay.texts import write_whole
from tests.replay.unit import Line, Places, failed_line, record, surface_lines

FORMAT = 1
ROOT = Path(__file__).resolve().parents[2]
# Subjects that the processes of one pool record; then their memory is given back. (The pool's own limit of
# tasks a process can leave it waiting for nobody: CPython issue 115634.)
_SUBJECTS_OF_A_POOL = 40
# What decides the bytes that are recorded, beside the product.
_PACKAGES = (
    "apache-tvm",
    "apache-tvm-ffi",
    "numpy",
    "nvidia-cuda-nvrtc-cu12",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "onnxslim",
    "torch",
    "transformers",
    "typer",
    "ziglang",
)


class ReplayError(Exception):
    """A recording cannot be made or read; one line."""


def versions() -> dict[str, str]:
    """Versions that a recording depends on."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}}


def machine() -> str:
    """This processor's model and features, hashed: libraries choose their kernels by them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    known = {line for line in lines if line.startswith(("model name", "flags", "Features", "isa"))}
    return hashlib.sha256("\n".join([platform.machine(), *sorted(known)]).encode()).hexdigest()[:16]


def check_origin(root: Path = ROOT) -> None:
    """Make sure that the product under test is the one beside this file, and not an installed one.

    Raises:
        ReplayError: a package comes from elsewhere.
    """
    for name in adapter.PACKAGES:
        file = importlib.import_module(name).__file__
        place = Path(file).resolve().parent.parent if file else None
        if place != root:
            raise ReplayError(
                f"package {name} comes from {place}, not from {root}: put that first in PYTHONPATH"
            )


def make(
    name: str, out: Path, cache: Path, jobs: int, resume: bool, fresh: bool = False, only: str = ""
) -> list[Line]:
    """Record a set.

    Args:
        name: of the set.
        out: file to write, whole or not at all; "OUT.parts" holds what is finished meanwhile.
        cache: folder of texts, models and objects.
        jobs: processes.
        resume: whether units that an interrupted recording finished are taken from it.
        fresh: compile every object, also those that are known.
        only: part of the subjects' names; "" takes all.

    Raises:
        ReplayError: the product is not the one of this checkout, or recording itself failed.
    """
    check_origin()
    parts = out.with_name(f"{out.name}.parts")
    if not resume:
        shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True, exist_ok=True)
    places = Places(cache / "texts", cache / "models", None if fresh else cache / "objects")
    with _own_places():
        wanted = [unit for unit in units(name) if only in unit.subject]
        _work(wanted, parts, places, jobs)
        found = [] if only else surface_lines(places)
    for unit in wanted:
        found += json.loads(_part(parts, unit).read_text())
    header: Line = {"format": FORMAT, "set": name, "versions": versions(), "machine": machine()}
    write_whole(out, lines_text([header, *found]).encode())
    shutil.rmtree(parts)
    return found


def lines_text(lines: Sequence[Line]) -> str:
    """The file's text: the header, then one line for each thing that was recorded."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def read(path: Path) -> tuple[Line, list[Line]]:
    """Header and lines of a recording.

    Raises:
        ReplayError: it is none, or of another format.
    """
    try:
        header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise ReplayError(f"{path} is no recording: {error}") from error
    if header.get("format") != FORMAT:
        raise ReplayError(f"{path} is of format {header.get('format')}, not {FORMAT}: record it again")
    return header, lines


@contextmanager
def _own_places() -> Iterator[None]:
    """Nothing of the user's is read (records, calibrations, boards, keys), and one thread each is used."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="edgetlm-replay-") as home:
        for variable in (
            "XDG_CACHE_HOME",
            "XDG_DATA_HOME",
            "XDG_CONFIG_HOME",
            "EDGETLM_KEYS",
            "EDGETLM_STORE",
        ):
            os.environ[variable] = str(Path(home, variable.lower()))
        Path(home, "tmp").mkdir()
        os.environ |= {"TMPDIR": str(Path(home, "tmp")), "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


def _part(parts: Path, unit: Unit) -> Path:
    return parts / f"{hashlib.sha256(repr(unit).encode()).hexdigest()[:24]}.json"


def _work(wanted: Sequence[Unit], parts: Path, places: Places, jobs: int) -> None:
    """Record what is not recorded yet, each subject in one go: its file is imported once."""
    start = time.monotonic()
    missing = [unit for unit in wanted if not _part(parts, unit).is_file()]
    while left := [unit for unit in missing if not _part(parts, unit).is_file()]:
        try:
            for batches in _pools(left):
                _in_processes(batches, parts, places, jobs)
                done = sum(_part(parts, unit).is_file() for unit in missing)
                sys.stderr.write(f"{done}/{len(missing)} after {time.monotonic() - start:.0f} s\n")
        except BrokenProcessPool:
            _name_the_crash(left, parts, places)


def _pools(wanted: Sequence[Unit]) -> Iterator[list[list[Unit]]]:
    """Units of one subject beside each other, in portions for one pool each."""
    batches = [list(group) for _, group in groupby(wanted, key=lambda unit: unit.subject)]
    for first in range(0, len(batches), _SUBJECTS_OF_A_POOL):
        yield batches[first : first + _SUBJECTS_OF_A_POOL]


def _in_processes(batches: Sequence[Sequence[Unit]], parts: Path, places: Places, jobs: int) -> None:
    """Record units in processes.

    Raises:
        BrokenProcessPool: a process died.
        ReplayError: recording itself failed.
    """
    # Forked processes would share TVM's threads and locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, faulthandler.enable) as pool:
        waiting = {pool.submit(_record_batch, batch, parts, places): batch for batch in batches}
        for finished in as_completed(waiting):
            batch = waiting[finished]
            try:
                finished.result()
            except BrokenProcessPool:
                raise
            except Exception as error:
                pool.shutdown(wait=False, cancel_futures=True)
                raise ReplayError(f"{batch[0].subject}: {type(error).__name__}: {error}") from error
            sys.stderr.write(f"{batch[0].subject}: {len(batch)} targets\n")


def _name_the_crash(wanted: Sequence[Unit], parts: Path, places: Places) -> None:
    """Record alone what was under way when a process died; what ends its process again failed."""
    for unit in wanted:
        started = _started(parts, unit)
        if not started.is_file():
            continue
        try:
            _in_processes([[unit]], parts, places, 1)
        except BrokenProcessPool:
            lines = [failed_line(unit, "the process died")]
            write_whole(_part(parts, unit), json.dumps(lines).encode())
            started.unlink()


def _started(parts: Path, unit: Unit) -> Path:
    return _part(parts, unit).with_suffix(".started")


def _record_batch(batch: Sequence[Unit], parts: Path, places: Places) -> None:
    check_origin()
    for unit in batch:
        _started(parts, unit).touch()
        lines = record(unit, places)
        write_whole(_part(parts, unit), json.dumps(lines).encode())
        _started(parts, unit).unlink()
