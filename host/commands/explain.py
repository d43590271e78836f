"""Explain a kernel of a bundle: its walk, its place on the roofline, and what the board has taught."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from device_agent.contract.text import printable
from host import bundle
from host.compile.explanation import Explanation, explained
from host.compile.stored_tasks.file import StoredTask, read_task, read_tasks
from host.errors import ScheduleError, UserError
from host.manifest import Kernel, Manifest

if TYPE_CHECKING:
    from host.learned_estimate.observation import Observation
    from host.learned_estimate.taught import BuiltKernel, Taught

# Kernels that an error names.
_NAMED = 8


def explain(path: Path, task: str, records: str | Path = "") -> Explanation:
    """Explain one kernel of a bundle.

    Args:
        path: bundle directory or zip.
        task: the kernel's name, or a part of exactly one name; "" for the only kernel.
        records: SQLAlchemy URL or path of the records; the user's own if "".

    Raises:
        ModelFileError: there is no bundle.
        BundleError: it is damaged.
        UserError: the bundle has no compiled kernels, or none or several of this name; or there are no
            records where they are said to be.
        EdgeError: the records cannot be read.
    """
    url = str(records)
    if url and "://" not in url and not Path(url).is_file():
        raise UserError(f"{url}: no records there; sdk deploy --trials N makes some, or leave --records out")
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as scratch:
        directory = bundle.unpacked(path, Path(scratch))
        manifest = bundle.load(directory)
        length = manifest.signature.length
        if length is not None:
            raise UserError(
                f"{path} serves {length.name}={length.low}..{length.high}, and a kernel is explained at one "
                "length: compile the model with --shape for one length, and explain that bundle"
            )
        kernel = _kernel(path, manifest, task)
        stored = read_task(directory, kernel.task)
        taught = _taught(directory, manifest, stored, records)
    return replace(explained(manifest, kernel, stored), taught=taught)


def _taught(directory: Path, manifest: Manifest, stored: StoredTask, records: str | Path) -> Taught:
    """What the board's records say of the bundle's kernels, or what to type where they say nothing."""
    from host.learned_estimate.taught import Taught, taught_about

    if not stored.recorded:
        return Taught(
            remark="the bundle says nothing of its board's records: compile or deploy the model again"
        )
    known = _observations(stored, records)
    rules = {one.rule for one in known}
    kernels = [one for one in manifest.kernels if one.source != "default" and one.rule in rules]
    if not kernels:
        return Taught(remark=_how_to_teach(stored.profile.device))
    tasks = read_tasks(directory, {one.task for one in kernels})
    built = [found for one in kernels if (found := _built(one, tasks[one.task])) is not None]
    return taught_about(built, known, stored.profile, stored.seed)


def _how_to_teach(device: str) -> str:
    """What to type where a board has taught nothing.

    Args:
        device: that the bundle was compiled for; a target, which may have a power mode behind it, is no
            device that can be measured on.
    """
    from targets import declared

    name = printable(device, 60)
    if device.partition("@")[0] in declared():
        return (
            f"no board has taught anything about these kernels of target {name}: sdk deploy MODEL "
            "--device NAME --trials 300 measures programs on your board of this kind"
        )
    return (
        f"the board has taught nothing about these kernels: sdk deploy MODEL --device {name} --trials 300 "
        "measures programs there"
    )


def _observations(stored: StoredTask, records: str | Path) -> list[Observation]:
    from host.learned_estimate.observation import observations_of
    from host.places import records_file
    from host.records import RecordStore
    from host.schedules.families import rule_versions

    if not records and not records_file().is_file():
        return []
    given: str | Path = str(records) if "://" in str(records) else Path(records or records_file())
    with RecordStore(given) as store:
        return observations_of(store.select(stored.recorded, rule_versions()))


def _built(kernel: Kernel, stored: StoredTask) -> BuiltKernel | None:
    """A kernel with its design space; None where the space of this version does not hold its program."""
    from host.learned_estimate.taught import BuiltKernel
    from host.schedules import space_for

    values = {name: int(value) for name, value in kernel.decisions.items()}
    try:
        space = space_for(stored.task, stored.profile.hardware, stored.profile.threads)
    except ScheduleError:
        return None
    names = {decision.name for decision in space.decisions}
    if space.rule.name != kernel.rule or names != set(values) or not space.legal(values):
        return None
    return BuiltKernel(kernel.name, kernel.weight, space, values, kernel.from_database)


def _kernel(path: Path, manifest: Manifest, name: str) -> Kernel:
    if not manifest.kernels:
        raise UserError(f"{path} runs with {manifest.backend} and has no kernels to explain")
    exact = [kernel for kernel in manifest.kernels if kernel.name == name]
    fitting = exact or [kernel for kernel in manifest.kernels if name in kernel.name]
    if len(fitting) == 1:
        return fitting[0]
    several = [kernel.name for kernel in (fitting or manifest.kernels)]
    more = f", and {len(several) - _NAMED} more that the report shows" if len(several) > _NAMED else ""
    names = ", ".join(several[:_NAMED]) + more
    what = f"several kernels fit --task {name}" if fitting else f"no kernel is called {name!r}"
    if not name:
        what = f"kernels: {len(fitting)}; name one with --task"
    raise UserError(f"{path}: {what}: use one of {names}")
