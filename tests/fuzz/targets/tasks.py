"""The tasks of a bundle: functions of TVM, of which a malformed one may end the process that reads it."""

from __future__ import annotations

import base64
import json
import os
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from host.bundle import TASKS
from host.compile.stored_tasks import file as tasks_file
from host.compile.stored_tasks import worker as tasks_worker
from host.errors import EdgeError
from host.sandbox import forked, scratch_folder
from tests.fuzz.case import Case, Outcome, canaries, complaint
from tests.fuzz.corpus import tasks as found
from tests.fuzz.mutate import grown, mangled, number, written

# One in so many is tried in a worker of its own, as the product does it, and not in a forked child.
_WHOLE = 50
_USE = f"{tasks_worker.__name__}:{tasks_worker.use.__name__}"


class Tasks:
    """The target."""

    name = "tasks"
    apart = True

    def open(self, place: Path) -> None:
        """A folder for the file."""
        self._place = place
        (place / "tmp").mkdir()
        os.environ["TMPDIR"] = str(place / "tmp")
        tempfile.tempdir = None
        found.content()

    def close(self) -> None:
        """Nothing is left running."""

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        return found.cases()

    def case(self, seed: int) -> Case:
        """The file with a function, or what is around it, changed."""
        rng = Random(f"tasks/{seed}")
        content = json.loads(json.dumps(found.content()))
        if rng.random() < 0.25:
            return Case(f"tasks-{seed}", {TASKS: written(rng, grown(rng, content))})
        entry = content["tasks"][found.task()]
        text = zlib.decompress(base64.b64decode(entry["function"])).decode()
        packed = zlib.compress(_function(rng, text))
        if rng.random() < 0.1:
            packed = mangled(rng, packed)
        entry["function"] = base64.b64encode(packed).decode()
        return Case(f"tasks-{seed}", {TASKS: json.dumps(content).encode()})

    def run(self, case: Case) -> Outcome:
        """Read the task and use it."""
        case.write(self._place / "bundle")
        peak = 0

        def prove(content: dict[str, Any]) -> None:
            nonlocal peak
            with scratch_folder() as scratch:
                (scratch / TASKS).write_text(json.dumps(content))
                (workload_hash,) = content["tasks"]
                request = {"workload_hash": workload_hash}
                ended = forked(_USE, request, [], scratch, tasks_file._LIMITS)
                peak = ended.memory_bytes
                if ended.kind == "error":
                    raise ValueError(ended.message)
                if ended.kind != "ok" or canaries(scratch):
                    raise ValueError(canaries(scratch) or ended.message)

        whole = case.name.rpartition("-")[2].isdigit() and int(case.name.rpartition("-")[2]) % _WHOLE == 0
        try:
            with mock.patch.object(tasks_file, "_check_usable", tasks_file._check_usable if whole else prove):
                stored = tasks_file.read_task(self._place / "bundle", found.task())
        except EdgeError as error:
            wrong = complaint(str(error)) or canaries(self._place)
            return Outcome("refused", str(error), wrong, peak)
        stored.task.function.script()
        return Outcome("ok", violation=canaries(self._place), memory_bytes=peak)


def _function(rng: Random, text: str) -> bytes:
    """The text of a function with some of its nodes changed."""
    if rng.random() < 0.2:
        return mangled(rng, text.encode())
    graph = json.loads(text)
    nodes = graph["nodes"]
    for _ in range(rng.choice((1, 1, 1, 3))):
        node = rng.choice(nodes)
        data = node.get("data") if isinstance(node, dict) else None
        new = rng.choice(
            (rng.randrange(len(nodes)), rng.randrange(len(nodes)), -1, 10**9, number(rng), None, "x")
        )
        if isinstance(data, dict) and data:
            data[rng.choice(sorted(data))] = new
        elif isinstance(data, list) and data:
            data[rng.randrange(len(data))] = new
        elif rng.random() < 0.3:
            node["type"] = rng.choice(nodes).get("type")
        else:
            node["data"] = rng.choice((-1, 10**9, "", "int8", "x" * 5000, 0, new))
    return json.dumps(graph).encode()
