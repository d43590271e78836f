"""The best programs of a whole model, chosen by the database.

The rule is that of `host.records.choice.best_program`; the database applies it to the columns of the rows,
so that a million records of a model are not read to take fifty. `near_rows` reads the fastest records of a
task alone and is sure of most tasks; `best_rows` reads all of them, for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sql

from host.records.choice import CLOSE
from host.records.database import RECORDS

# The programs among which the best is looked for have a record that is so much slower than the fastest one.
_NEAR = 1.1 * CLOSE
# Written into the statement: an index with this condition is not used for a parameter.
_ALONE: sql.ColumnElement[str] = sql.literal_column("''")


def near_rows(
    profile_key: str,
    tasks: Mapping[str, tuple[str, int]],
    measured: sql.ColumnElement[bool],
    arrays: bool = False,
) -> sql.Select[Any]:
    """What `best_rows` gives for tasks of which few records decide: "workload_hash" and "number".

    A program's time is the mean of its records, which is not below the fastest of them. Where the fastest
    mean among programs near the fastest record is so near itself, no other program can be taken. A task
    is left out where that is not so, or where kernels were measured inside of a model, for which there is
    another rule.

    Args:
        profile_key: of the device.
        tasks: the rule and its version of each, by workload hash; at least one.
        measured: says of a row whether its time counts.
        arrays: give the tasks as arrays, which PostgreSQL has: the text of the statement is then made once,
            and not for each number of tasks.
    """
    rows = [(task, rule, version) for task, (rule, version) in tasks.items()]
    columns = {"task": sql.String(), "rule": sql.String(), "version": sql.Integer()}
    asked = (_arrays if arrays else _values)(columns, rows).cte("asked")

    def of(one: sql.FromClause) -> sql.ColumnElement[bool]:
        return sql.and_(
            RECORDS.c.profile_key == profile_key,
            RECORDS.c.workload_hash == one.c.task,
            RECORDS.c.rule == one.c.rule,
            RECORDS.c.space_version == one.c.version,
            measured,
        )

    least = sql.select(sql.func.min(RECORDS.c.median_s)).where(of(asked)).scalar_subquery()
    inside = sql.select(RECORDS.c.id).where(of(asked), RECORDS.c.measured_in != _ALONE).exists()
    # Each is asked once for a task, and not again for each record that is compared with it.
    fastest = (
        sql.select(asked, least.label("least_s"), inside.label("inside"))
        .cte("fastest")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    near = (
        sql.select(fastest, RECORDS.c.candidate_key)
        .distinct()
        .where(of(fastest), RECORDS.c.median_s <= _NEAR * fastest.c.least_s, sql.not_(fastest.c.inside))
        .cte("near")
    )
    mean = sql.func.avg(RECORDS.c.median_s)
    programs = (
        sql.select(
            near.c.task,
            near.c.least_s,
            mean.label("seconds"),
            sql.func.min(RECORDS.c.id).label("first"),
            sql.func.min(mean).over(partition_by=near.c.task).label("best_s"),
        )
        .where(of(near), RECORDS.c.candidate_key == near.c.candidate_key)
        .group_by(near.c.task, near.c.least_s, near.c.candidate_key)
        .subquery("programs")
    )
    return (
        sql.select(programs.c.task, sql.func.min(programs.c.first).label("number"))
        .where(
            programs.c.seconds <= CLOSE * programs.c.best_s,
            CLOSE * programs.c.best_s <= _NEAR * programs.c.least_s,
        )
        .group_by(programs.c.task)
    )


def _values(columns: Mapping[str, Any], rows: Sequence[tuple[Any, ...]]) -> Any:
    return sql.values(*(sql.column(name, kind) for name, kind in columns.items()), name="asked").data(rows)


def _arrays(columns: Mapping[str, Any], rows: Sequence[tuple[Any, ...]]) -> Any:
    from sqlalchemy.dialects.postgresql import ARRAY

    parts = [
        sql.func.unnest(sql.bindparam(None, list(part), type_=ARRAY(kind)), type_=kind).label(name)
        for (name, kind), part in zip(columns.items(), zip(*rows, strict=True), strict=True)
    ]
    return sql.select(*parts)


def best_numbers(
    ask: Callable[[sql.Select[Any]], Sequence[Any]],
    profile_key: str,
    tasks: Mapping[str, tuple[str, int]],
    measured: sql.ColumnElement[bool],
    arrays: bool = False,
) -> dict[int, str]:
    """The task of each record that is to be taken, by the record's `id`.

    Args:
        ask: gives the rows of a query.
        profile_key: of the device.
        tasks: the rule and its version of each, by workload hash.
        measured: says of a row whether its time counts.
        arrays: see `near_rows`.
    """
    if not tasks:
        return {}
    numbers = {number: task for task, number in ask(near_rows(profile_key, tasks, measured, arrays))}
    rest = set(tasks) - set(numbers.values())
    if rest:
        for task, rule, version, number in ask(best_rows(profile_key, sorted(rest), measured)):
            if tasks.get(task) == (rule, version):
                numbers[number] = task
    return numbers


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
    # Once a program was measured again, one that was not may only have been lucky: `comparable_costs` of
    # `host.records.choice`.
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
