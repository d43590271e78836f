"""Rows that fill a database."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from host.records import Record
from host.records.database import row_of
from host.records.record import key_of, line_of
from tests.unit.records.samples import record

DEVICES, TASKS = 20, 500
# Rows of a device are spread over the database, as those of devices that measure at the same time.
_TASK, _TILE, _TIME = "f" * 64, 4095, 123456.0


def task_name(number: int) -> str:
    """A workload hash."""
    return hashlib.sha256(b"task %d" % number).hexdigest()


def some_record(threads: int) -> Record:
    """A record as long as those of a tuning: nine times, and the task in words."""
    one = record(_TIME, tile=_TILE, threads=threads, task=_TASK)
    words = tuple(f"word{number}" for number in range(60))
    measured = replace(one.measurement, times_s=one.measurement.times_s * 3)
    return replace(one, measurement=measured, origin=replace(one.origin, sentence=words, model="mobilenetv2"))


def made_rows(count: int) -> Iterator[dict[str, Any]]:
    """So many rows, whose lines are records."""
    templates = []
    for threads in range(1, DEVICES + 1):
        one = some_record(threads)
        line = line_of(one)
        templates.append((one, row_of(one, line), line))
    names = [task_name(number) for number in range(TASKS)]
    draw = random.Random(7)
    time_text = json.dumps(_TIME * 1e-3)
    for number in range(count):
        one, row, line = templates[number % DEVICES]
        task = names[number // DEVICES % TASKS]
        tile = number // (DEVICES * TASKS) + 1
        seconds = math.exp(draw.gauss(-7.0, 0.5))
        content = line.replace(_TASK, task).replace(str(_TILE), str(tile)).replace(time_text, repr(seconds))
        # As `Record` makes them: a row whose keys are not those of its line is not believed.
        values = one.candidate.decisions
        decisions = [[name, [tile, 8] if value == (_TILE, 8) else value] for name, value in values]
        program = key_of([task, one.candidate.rule, decisions, one.candidate.space_version])
        times = [seconds] * len(one.measurement.times_s)
        said = [program, one.candidate.proposer, row["profile_key"], one.made_at, times, ""]
        keys = {"record_key": key_of(said), "workload_hash": task, "candidate_key": program}
        yield {**row, **keys, "median_s": seconds, "content": content}
