"""The best programs of a whole model in one question, chosen by the database.

The rule is that of `host.records.record.fastest_program`; the database applies it to the columns of the rows,
so that a million records of a model are not read to take fifty.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sql

from host.records.database import RECORDS
from host.records.record import CLOSE


def best_rows(profile_key: str, tasks: Collection[str], measured: sql.ColumnElement[bool]) -> sql.Select[Any]:
    """For each task, rule and version of its space: "workload_hash", "rule", "space_version" and "number".

    The number is the `id` of the record whose program is to be taken.

    Args:
        profile_key: of the device.
        tasks: workload hashes.
        measured: says of a row whether its time counts.
    """
    keys = ("workload_hash", "rule", "space_version")
    mine = [RECORDS.c[key] for key in keys]
    kind = sql.func.max(RECORDS.c.measured_in).over(partition_by=mine).label("kind")
    rows = (
        sql.select(
            *mine, RECORDS.c.id, RECORDS.c.candidate_key, RECORDS.c.median_s, RECORDS.c.measured_in, kind
        )
        .where(RECORDS.c.profile_key == profile_key, RECORDS.c.workload_hash.in_(list(tasks)), measured)
        .subquery("measured_rows")
    )
    # Times inside of a model do not compare with those of kernels alone: `of_one_kind`.
    programs = (
        sql.select(
            *(rows.c[key] for key in keys),
            rows.c.kind,
            sql.func.avg(rows.c.median_s).label("seconds"),
            sql.func.min(rows.c.id).label("first"),
            sql.func.count().label("times"),
        )
        .where(rows.c.measured_in == rows.c.kind)
        .group_by(*(rows.c[key] for key in keys), rows.c.kind, rows.c.candidate_key)
        .subquery("programs")
    )
    part = [programs.c[key] for key in keys]
    ranked = sql.select(
        programs,
        sql.func.min(programs.c.first).over(partition_by=part).label("earliest"),
        sql.func.max(programs.c.times).over(partition_by=part).label("most"),
    ).subquery("ranked")
    # Once a program was measured again, one that was not may only have been lucky: `comparable_times`.
    counted = (
        sql.select(
            ranked,
            sql.func.min(ranked.c.seconds)
            .over(partition_by=[ranked.c[key] for key in keys])
            .label("fastest"),
        )
        .where(
            sql.or_(
                ranked.c.kind == "",
                ranked.c.most == 1,
                ranked.c.times > 1,
                ranked.c.first == ranked.c.earliest,
            )
        )
        .subquery("counted")
    )
    taken = [counted.c[key] for key in keys]
    return (
        sql.select(*taken, sql.func.min(counted.c.first).label("number"))
        .where(counted.c.seconds <= CLOSE * counted.c.fastest)
        .group_by(*taken)
    )
