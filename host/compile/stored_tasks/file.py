"""tasks.json of a bundle: each kernel's unscheduled function and the profile it was made for.

With it every decision can be explained later, without the model file and without the device.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import zlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from device_agent.contract import strict_json
from device_agent.contract.text import printable
from host.bundle import TASKS
from host.errors import BundleError, UserError
from host.model import DeviceProfile, Site, Task
from host.plans.plan import ModelPlan
from host.records.record import profile_data
from host.sandbox import Limits, Unforeseen, Worker, WorkerLost
from targets import Board, HardwareModel

if TYPE_CHECKING:
    import tvm

    from host.compile.static_model import Plan

SCHEMA = "edgetlm.tasks/2"
# With one space version for all tasks.
_SCHEMA_1 = "edgetlm.tasks/1"

# Of the plan in words.
_PLAN_CHARACTERS = 20_000
_TASKS_BYTES, _FUNCTION_BYTES = 64 << 20, 64 << 20
_LIMITS = Limits(memory_bytes=3_800_000_000, cpu_s=24.0, time_s=100.0, file_bytes=1 << 20)
_DAMAGES = (
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    ValueError,
    ValidationError,
    RuntimeError,
    zlib.error,
)


@dataclass(frozen=True, eq=False)
class StoredTask:
    """One task of a bundle.

    Attributes:
        task: its name is the one in the model that the bundle was made of.
        profile: what it was made for; of the board only name, target and hardware are known.
        seed: of the proposer.
        estimate_s: the proposer's estimate of the program taken; None if it had none.
        reason: why it has a default schedule; "" where it has not.
        space_version: version of the rule of its program; 0 where it has a default schedule.
        recorded: the profile that records of the device carry; empty in bundles of versions that kept none.
        plan: of the whole model, in words; "" where nothing was decided across operators.
    """

    task: Task
    profile: DeviceProfile
    seed: int
    estimate_s: float | None
    reason: str
    space_version: int
    recorded: dict[str, Any] = field(default_factory=dict)
    plan: str = ""


def tasks_json(
    tasks: Sequence[Task], plan: Plan, profile: DeviceProfile, seed: int, sites: Sequence[Site] = ()
) -> str:
    """The text of `tasks.json`: the program and the estimate of each task, by workload hash.

    Args:
        tasks: of the model.
        plan: their programs.
        profile: of the device.
        seed: of the proposer.
        sites: what lowering decided across operators; kept in words.
    """
    entries: dict[str, Any] = {}
    for task in tasks:
        candidate = plan.chosen.get(task.workload_hash)
        known = candidate is not None and math.isfinite(candidate.estimate_s)
        entries[task.workload_hash] = {
            "name": task.name,
            "weight": task.weight,
            "flops": task.flops,
            "model_weights_bytes": task.model_weights_bytes,
            "estimate_s": candidate.estimate_s if candidate is not None and known else None,
            "reason": plan.reasons.get(task.workload_hash, ""),
            "space_version": candidate.space_version if candidate is not None else 0,
            "function": packed_function(task.function),
        }
    content = {
        "schema": SCHEMA,
        "seed": seed,
        "device": profile.device,
        "board": {"name": profile.board.name, "title": profile.board.title},
        "architecture": profile.board.architecture,
        "target": dict(profile.board.tvm_target),
        "threads": profile.threads,
        "hardware": asdict(profile.hardware),
        "recorded": profile_data(profile),
        "plan": _plan_text(sites),
        "tasks": entries,
    }
    return json.dumps(content) + "\n"


def _plan_text(sites: Sequence[Site]) -> str:
    """The plan of the whole model in words, "" where nothing was left open."""
    if not sites:
        return ""
    plan = ModelPlan.of(sites)
    return f"{plan.name}: {plan.trace(sites)}"[:_PLAN_CHARACTERS]


def read_task(directory: Path, workload_hash: str) -> StoredTask:
    """One task of a bundle's directory; see `read_tasks`."""
    return read_tasks(directory, [workload_hash])[workload_hash]


def read_tasks(directory: Path, workload_hashes: Collection[str]) -> dict[str, StoredTask]:
    """Tasks of a bundle's directory, by workload hash.

    A bundle is of unknown origin, and TVM crashes on a malformed function. So a worker reads and uses the
    tasks first, and what is read here afterwards is the same text.

    Raises:
        UserError: the bundle carries no tasks.
        BundleError: they are damaged or of another version.
    """
    path = directory / TASKS
    if not path.is_file():
        raise UserError(f"{directory} holds no {TASKS}: compile or deploy the model again with this version")
    try:
        if path.stat().st_size > _TASKS_BYTES:
            raise ValueError(f"over {_TASKS_BYTES} bytes")
        with path.open("rb") as stream:
            content = strict_json.parse(stream.read(_TASKS_BYTES + 1), _TASKS_BYTES, "the text")
        if content["schema"] not in (SCHEMA, _SCHEMA_1):
            raise BundleError(
                f"{path} has schema {printable(content['schema'], 60)!r}, this program reads {SCHEMA!r}: "
                "make it again"
            )
        wanted = {**content, "tasks": {key: content["tasks"][key] for key in workload_hashes}}
        _check_usable(wanted)
        return {key: stored_task(wanted, key) for key in workload_hashes}
    except _DAMAGES as error:
        reason = printable(error, 200) or type(error).__name__
        raise BundleError(f"{path} is damaged ({reason}): make the bundle again") from error


def stored_profile(content: dict[str, Any]) -> DeviceProfile:
    """The profile that the tasks of a file were made for.

    Raises:
        KeyError, TypeError, ValueError, ValidationError: it is malformed.
    """
    hardware = TypeAdapter(HardwareModel).validate_python(content["hardware"])
    board = Board(
        **content["board"],
        architecture=content["architecture"],
        tvm_target=content["target"],
        hardware=hardware,
    )
    return DeviceProfile(content["device"], board, hardware, content["threads"])


def stored_task(
    content: dict[str, Any],
    workload_hash: str,
    profile: DeviceProfile | None = None,
    function: tvm.tirx.PrimFunc | None = None,
) -> StoredTask:
    """A task out of the content of a file; TVM crashes on some malformed ones, see `read_task`.

    Args:
        content: of the file.
        workload_hash: of the task.
        profile: `stored_profile` of the content, where the caller has it.
        function: of the task, where the caller has it.

    Raises:
        KeyError, TypeError, ValueError, ValidationError, RuntimeError, zlib.error: it is malformed.
    """
    entry = content["tasks"][workload_hash]
    function = function if function is not None else unpacked_function(entry["function"])
    # Bundles of earlier versions do not say how large the weights are.
    weights = _number(entry.get("model_weights_bytes", 0), "bytes of weights")
    return StoredTask(
        task=Task(
            entry["name"],
            function,
            entry["weight"],
            workload_hash,
            entry["flops"],
            model_weights_bytes=weights,
        ),
        profile=profile or stored_profile(content),
        seed=content["seed"],
        estimate_s=entry["estimate_s"],
        reason=entry["reason"],
        recorded=_recorded(content.get("recorded", {})),
        # Bundles of earlier versions have none.
        plan=printable(content.get("plan", ""), _PLAN_CHARACTERS),
        space_version=_number(
            (content if content["schema"] == _SCHEMA_1 else entry)["space_version"], "a version of a rule"
        ),
    )


def _number(value: object, what: str) -> int:
    if type(value) is not int:
        raise ValueError(f"{what} that is no number")
    return value


def _recorded(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a profile of records that is no object")
    return value


def _check_usable(content: dict[str, Any]) -> None:
    """Read and use tasks in a worker.

    Raises:
        ValueError: the worker crashed on one, was over a limit, or met an error.
    """
    first = ("host.execution.without_torch", "host.compile.stored_tasks.worker")
    with Worker([], replace(_LIMITS, calls=max(1, len(content["tasks"]))), first) as worker:
        (worker.scratch / TASKS).write_text(json.dumps(content))
        try:
            for key in content["tasks"]:
                worker.call(
                    "host.compile.stored_tasks.worker:use",
                    {"workload_hash": key},
                    lambda: importlib.import_module("host.schedules"),
                )
        except (WorkerLost, Unforeseen) as error:
            raise ValueError(str(error)) from error


def packed_function(function: tvm.tirx.PrimFunc) -> str:
    """An unscheduled function as text of a file."""
    import tvm

    return base64.b64encode(zlib.compress(tvm.ir.save_json(function).encode(), 9)).decode()


def unpacked_function(text: str) -> tvm.tirx.PrimFunc:
    """The function of such a text.

    Raises:
        ValueError: it is truncated, too large, or of something else.
    """
    import tvm

    inflater = zlib.decompressobj()
    data = inflater.decompress(base64.b64decode(text, validate=True), _FUNCTION_BYTES)
    if not inflater.eof:
        raise ValueError(f"a function of over {_FUNCTION_BYTES} bytes, or a truncated one")
    function = tvm.ir.load_json(data.decode())
    if not isinstance(function, tvm.tirx.PrimFunc):
        raise ValueError("what is no function")
    return function
