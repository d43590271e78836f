"""Revisions of the tables: what alembic makes of every earlier database, and which are left as they are."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from host.errors import EdgeError
from host.records import Record, RecordOrigin, RecordStore
from host.records.database import BATCH, METADATA, REVISION
from host.records.epochs import BoardEpochs
from sdk.cli.main import main
from tests.servers.postgres import Server
from tests.unit.records.samples import profile, record, same, version_1, version_2, version_3


def test_the_newest_revision_makes_the_tables_of_the_program(place: str | Path) -> None:
    config = Config()
    config.set_main_option("script_location", "host.records.database:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]
    with RecordStore(place) as store, store._database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
        assert context.get_current_revision() == REVISION


def test_a_store_of_the_first_version_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    # The last two are the same: one of them is kept.
    old = [record(3.0), *(record(4.0 + number, tile=8) for number in range(BATCH)), record(2.0, tile=16)]
    version_1(path, [*old, old[-1]])
    for _ in range(2):
        with RecordStore(path) as store:
            assert all(same(a, b) for a, b in zip(store, old, strict=True))
            best = store.best("task", profile())
            assert best is not None and best.candidate.value("rows") == (16, 8)
    with RecordStore(path) as store:
        assert store.append([old[0], record(1.0)]) == 1


def _dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    lines = list(connection.iterdump())
    connection.close()
    return lines


def test_a_store_that_cannot_be_upgraded_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    version_1(path, [record(1.0), record(2.0)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE records SET content = '{\"schema\": 7}' WHERE id = 2")
    connection.commit()
    connection.close()
    before = _dump(path)
    with pytest.raises(EdgeError, match="version 1 cannot be brought to version 5: row 2 is damaged"):
        RecordStore(path)
    assert _dump(path) == before


def _old_records() -> list[Record]:
    """More than a batch, in the model and alone."""
    alone = [record(5.0 + number, tile=16) for number in range(BATCH)]
    inside = RecordOrigin.read({"measured_in": "model"})
    return [*alone, *(replace(record(ms, tile=tile), origin=inside) for ms, tile in ((3.0, 8), (2.0, 4)))]


def test_a_store_of_the_second_version_is_upgraded(place: str | Path, server: Server) -> None:
    old = _old_records()
    version_2(place, old)
    if not isinstance(place, Path):
        assert main(["records", "upgrade", "--records", place]) == 0
    with RecordStore(place) as store:
        assert all(same(a, b) for a, b in zip(store, old, strict=True))
        rule = (old[0].candidate.rule, old[0].candidate.space_version)
        best = store.best_of({"task": rule}, profile())["task"]
        assert same(best, old[-1]), "that was measured inside of a model"
        assert store.append([old[0], record(1.0)]) == 1


def test_a_store_of_the_third_version_is_upgraded(place: str | Path) -> None:
    old = _old_records()
    version_3(place, old)
    if not isinstance(place, Path):
        assert main(["records", "upgrade", "--records", place]) == 0
    with RecordStore(place) as store:
        assert all(same(a, b) for a, b in zip(store, old, strict=True))
        assert len(store.best_of({"task": ("matmul", 4)}, profile())) == 1
        assert store.append([old[0], record(1.0)]) == 1
    with BoardEpochs(place) as epochs:
        assert epochs.present("board") is None
        with epochs._database.reading() as connection:
            found = {
                one["name"]: one["column_names"] for one in sql.inspect(connection).get_indexes("records")
            }
        assert found["records_by_task"][-1] == "epoch"
        assert {"records_by_program", "records_in_models"} <= set(found)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_store_goes_back_to_an_earlier_version_and_comes_again(place: str | Path, version: int) -> None:
    old = _old_records()
    with RecordStore(place) as store:
        store.append(old)
    assert main(["records", "downgrade", str(version), "--records", str(place)]) == 0

    def shape(where: str | Path) -> dict[str, tuple[set[str], set[tuple[str, ...]]]]:
        """The columns and indexes of each table."""
        engine = sql.create_engine(f"sqlite:///{where}" if isinstance(where, Path) else where)
        inspector = sql.inspect(engine)
        found = {
            table: (
                {str(one["name"]) for one in inspector.get_columns(table)},
                {tuple(map(str, one["column_names"])) for one in inspector.get_indexes(table)},
            )
            for table in inspector.get_table_names()
            if table != "alembic_version"
        }
        with engine.connect() as connection:
            if version == 2:
                assert connection.exec_driver_sql("SELECT * FROM meta").all() == [("schema_version", "2")]
            assert connection.exec_driver_sql("SELECT count(*) FROM records").scalar() == len(old)
        engine.dispose()
        return found

    there = shape(place)
    # As the programs of that time made them.
    for name, made in {2: version_2, 3: version_3}.items():
        if name == version and isinstance(place, Path):
            made(beside := place.with_name("beside.sqlite"), old)
            assert shape(beside) == there
    assert ("leases" in there, "board_epochs" in there) == (version > 2, version > 3)
    if not isinstance(place, Path):
        assert main(["records", "upgrade", "--records", place]) == 0
    with RecordStore(place) as store:
        assert all(same(a, b) for a, b in zip(store, old, strict=True))
        assert len(store.best_of({"task": ("matmul", 4)}, profile())) == 1
        assert store.append([old[0], record(1.0)]) == 1
        with store._database.reading() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, METADATA) == []


@pytest.mark.parametrize("version", ["1", "5", "9"])
def test_there_is_no_way_back_to_other_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    assert main(["records", "downgrade", version, "--records", str(tmp_path / "records.sqlite")]) == 2
    assert "is of schema version 5: name an earlier one, from 2 on" in capsys.readouterr().err


def test_a_shared_store_is_brought_up_to_date_by_its_owner_alone(
    shared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    version_2(shared, [record(1.0)])
    message = (
        r"of schema version 2, this program reads version 5: .* sdk records upgrade.*nothing was changed"
    )
    for _ in range(2):
        with pytest.raises(EdgeError, match=message):
            RecordStore(shared)
    assert main(["records", "upgrade", "--records", shared]) == 0
    assert "is up to date" in capsys.readouterr().out
    with RecordStore(shared) as store:
        assert len(list(store)) == 1


def test_a_shared_store_of_a_newer_program_is_left_as_it_is(shared: str) -> None:
    with RecordStore(shared) as store, store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0009'")
    with pytest.raises(
        EdgeError, match="is of schema version 9, this program reads version 5: take the program"
    ):
        RecordStore(shared)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            ["UPDATE alembic_version SET version_num = '0006'"],
            "is of schema version 6, this program reads version 5: .* --records; nothing was changed",
        ),
        (["UPDATE alembic_version SET version_num = 'new'"], "is not a record store"),
        (["UPDATE alembic_version SET version_num = '0000'"], "is not a record store"),
        (["UPDATE alembic_version SET version_num = '\u00b2'"], "is not a record store"),
        (["DELETE FROM alembic_version"], "is not a record store"),
        (["DROP TABLE alembic_version"], "is not a record store"),
        (["DROP TABLE alembic_version", "CREATE TABLE alembic_version (a INTEGER)"], "is not a record store"),
    ],
)
def test_a_store_of_another_version_is_left_as_it_is(
    tmp_path: Path, statements: list[str], message: str
) -> None:
    path = tmp_path / "records.sqlite"
    with RecordStore(path) as store:
        store.append([record(1.0)])
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    before = _dump(path)
    with pytest.raises(EdgeError, match=message):
        RecordStore(path)
    assert _dump(path) == before


def test_what_may_only_be_read_is_not_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    version_1(path, [record(1.0)])
    with pytest.raises(EdgeError, match=r"records\.sqlite.* cannot be opened: it may only be read"):
        RecordStore(f"sqlite:///file:{path}?mode=ro&uri=true")
