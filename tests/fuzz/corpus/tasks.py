"""The tasks of a bundle in their right form, and those that once ended the process."""

from __future__ import annotations

import base64
import copy
import functools
import json
import zlib
from types import SimpleNamespace
from typing import Any

from host.bundle import TASKS
from host.compile.stored_tasks.file import tasks_json
from host.model import DeviceProfile
from tests.fuzz.case import Case
from tests.unit.records.stock import BOARD, dense_space


@functools.cache
def content() -> dict[str, Any]:
    """What the file of a bundle with one task holds."""
    plan: Any = SimpleNamespace(chosen={}, reasons={})
    profile = DeviceProfile("desk", BOARD, BOARD.hardware, 1)
    read: dict[str, Any] = json.loads(tasks_json([dense_space().task], plan, profile, 0))
    return read


def task() -> str:
    """The name of the task."""
    return next(iter(content()["tasks"]))


@functools.cache
def cases() -> list[Case]:
    """One for each fault, and the file without one."""
    functions = {
        "empty": b"",
        "no-object": b"5",
        "no-nodes": b'{"root_index": 0, "nodes": []}',
        "no-root": b'{"root_index": 999999, "nodes": [{"type": "None"}]}',
        "itself": b'{"root_index": 0, "nodes": [{"type": "ffi.Array", "data": [0]}]}',
        "no-type": b'{"root_index": 0, "nodes": [{"type": "no.such.type", "data": {}}]}',
        "null-root": b'{"root_index": 0, "nodes": [{"type": "None"}]}',
        "deep": b"[" * 100_000,
    }
    packed = {name: zlib.compress(text) for name, text in functions.items()}
    packed["swells"] = zlib.compress(b" " * (200 << 20))
    packed["cut"] = zlib.compress(b" " * 1000)[:-4]
    texts = {name: base64.b64encode(data).decode() for name, data in packed.items()}
    texts |= {"no-base64": "\u00e9", "number": "9" * 5000}
    found = []
    for name, text in texts.items():
        changed = copy.deepcopy(content())
        changed["tasks"][task()]["function"] = text
        found.append(Case(f"tasks-{name}", {TASKS: json.dumps(changed).encode()}))
    others = {"list": b"[]", "deep-file": b"[" * 100_000, "nul": b"\0", "nan": b'{"schema": NaN}'}
    # The file as it is written is read: else a harness that refuses everything finds nothing.
    others["as-written"] = json.dumps(content()).encode()
    return [*found, *(Case(f"tasks-{name}", {TASKS: text}) for name, text in others.items())]
