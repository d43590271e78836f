"""What a worker does with a task of a bundle before its parent reads it: use it once. See `tasks_file`."""

from __future__ import annotations

import json
from pathlib import Path

from host.bundle import TASKS
from host.compile.stored_tasks.file import stored_task
from host.errors import ScheduleError
from host.lowering.tasks import workload_hash as hash_of
from host.schedules import space_for


def use(workload_hash: str) -> bool:
    """Read the task, print it, and make its design space; True if nothing of it fails.

    Raises:
        ValueError: the task is another than its name says.
    """
    stored = stored_task(json.loads(Path(TASKS).read_text()), workload_hash)
    function = stored.task.function
    if hash_of(function) != workload_hash:
        raise ValueError("a function is another than its name says")
    function.script()
    try:
        space_for(stored.task, stored.profile.hardware, stored.profile.threads)
    except ScheduleError:
        return False
    return True
